"""Training runs in the slack alone: no micro-step starts that cannot end before the next release that needs its core.

The next releases of periodic tasks are known. A release needs the core if, with the micro-step there and what else will still be
running, the released job could start nowhere. Releases that nobody can foresee (submitted jobs, children) may still be blocked,
by one micro-step at most. A background job waits for the end of a micro-step where both together would be in the way.
"""

from __future__ import annotations

from edgeengine.scheduling.job import RANK, Job, Move, Task
from edgeengine.scheduling.view import View

BACKGROUND = RANK["background"]


def first_startable(view: View, job: Job, now: int, busy: int) -> tuple[Move | None, int | None]:
    """The job's fastest move that may start now; without one, the first release that another waits for (None: no release)."""
    awaited: int | None = None
    moves = job.task.fastest[job.position]
    if job.task.moved and job.position:
        moves = sorted(moves, key=lambda m: m.left_from_ns(job.last_processor))
    for move in moves:
        p = move.processor
        if p.mask & busy or p.held_until_ns > now:
            continue
        release_ns = awaited_ns(view, job, move, now, busy)
        if release_ns is None:
            return move, None
        awaited = release_ns if awaited is None else min(awaited, release_ns)
    return None, awaited


def awaited_ns(view: View, job: Job, move: Move, now: int, busy: int) -> int | None:
    """When the release comes that `move` of a training job would stand in the way of, by its p99; None if it may start now.

    The same for a background job while training runs; always None for other jobs. `busy` are the resources taken by what
    runs and what starts now.
    """
    if job.task.rank < BACKGROUND or not (job.task.train or _training_runs(view)):
        return None
    end_ns = now + move.p99_ns
    known = ((_next_release_ns(t), t) for t in view.tasks if t.rank < job.task.rank)
    due = sorted((at_ns, t.rank, t.index) for at_ns, t in known if at_ns is not None and now <= at_ns < end_ns)
    if not due:
        return None
    taken = [(end_ns, move.processor.mask)]
    running = 0
    for p in view.running():
        assert p.move is not None
        begun_ns = p.started_ns if p.started_ns is not None else now
        taken.append((begun_ns + p.move.p99_ns, p.mask))
        running |= p.mask
    taken.append((end_ns, busy & ~running))  # what starts at this instant, for how long is not known here
    for release_ns, _, index in due:
        places = [m for m in view.tasks[index].moves[0] if m.processor.available]
        free = [m for m in places if not _is_taken(taken, m.processor.mask, release_ns)]
        if places and not free:
            return max(release_ns, now + 1)  # one due now may yet come at this instant, or never
        if free:
            first = min(free, key=lambda m: m.p50_ns)
            taken.append((release_ns + first.p99_ns, first.processor.mask))
    return None


def _next_release_ns(task: Task) -> int | None:
    """The first release of a period is at the start of the run."""
    return 0 if task.period_ns is not None and not task.released else task.next_release_ns


def _training_runs(view: View) -> bool:
    return any(p.job is not None and p.job.task.train for p in view.processors)


def _is_taken(taken: list[tuple[int, int]], mask: int, at_ns: int) -> bool:
    return any(end_ns > at_ns and held & mask for end_ns, held in taken)
