"""Training runs in the slack alone: no micro-step starts that cannot end before the next release that needs its core.

The next releases of periodic tasks are known. A release needs the core if, with the micro-step there and what else will still be
running, the released job could start nowhere. Releases that nobody can foresee (submitted jobs, children) may still be blocked,
by one micro-step at most.
"""

from __future__ import annotations

from edgeengine.scheduling.job import Job, Move
from edgeengine.scheduling.view import View


def awaited_ns(view: View, job: Job, move: Move, now: int, busy: int) -> int | None:
    """The release that a training job's `move` would stand in the way of, by its p99; None if it may start now.

    `busy` are the resources taken by what runs and what starts now. Always None for other jobs.
    """
    if not job.task.train:
        return None
    end_ns = now + move.p99_ns
    due = sorted(
        (t.next_release_ns, t.rank, t.index)
        for t in view.tasks
        if not t.train and t.next_release_ns is not None and now < t.next_release_ns < end_ns
    )
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
            return release_ns
        if free:
            first = min(free, key=lambda m: m.p50_ns)
            taken.append((release_ns + first.p99_ns, first.processor.mask))
    return None


def _is_taken(taken: list[tuple[int, int]], mask: int, at_ns: int) -> bool:
    return any(end_ns > at_ns and held & mask for end_ns, held in taken)
