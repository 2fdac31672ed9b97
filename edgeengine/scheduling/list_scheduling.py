"""List scheduling: walk the jobs in a given order, start each on the free processor that finishes it first.

What FIFO, EDF and their like share; a policy supplies the order. Two rules keep it from collapsing: what can no longer finish is
dropped, and a job is not started where it would be late. It waits for a faster processor, which then is kept for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeengine.events import AnyAction, Drop, Start, Wake
from edgeengine.scheduling.dropping import CANNOT_FINISH
from edgeengine.scheduling.job import Job, Move
from edgeengine.scheduling.slack import first_startable
from edgeengine.scheduling.view import View


def start_in_order(view: View, jobs: Iterable[Job], now: int, early_drop: bool, busy: int | None = None) -> list[AnyAction]:
    """Decide for each job in turn. A job is dropped when now + its least expected remaining time lies past its deadline.

    Work-conserving but for jobs that would be late on every free processor. Without `early_drop` these start all the same,
    unless another processor, busy now, is expected to make it. `busy`: resources that are taken, where not only what runs.
    """
    actions: list[AnyAction] = []
    busy = view.busy_mask if busy is None else busy
    full = view.all_mask
    started: list[Move] = []
    for job in jobs:
        task, slack_ns = job.task, job.due_ns - now
        if early_drop and task.best_ns[job.position] > slack_ns:
            actions.append(Drop(task.name, job.index, CANNOT_FINISH))
            continue
        if busy == full:
            if not early_drop:
                break
            continue
        best, release_ns = first_startable(view, job, now, busy)
        if best is None:
            if release_ns is not None:
                actions.append(Wake(release_ns))
            continue
        if best.left_from_ns(job.last_processor) > slack_ns:
            awaited = _in_time_elsewhere(view, started, job, job.due_ns, now)
            if awaited is not None:
                busy |= awaited.processor.mask
                continue
            if early_drop:
                continue
        busy |= best.processor.mask
        started.append(best)
        actions.append(Start(task.name, job.index, best.subgraph, best.processor.name))
    return actions


def _in_time_elsewhere(view: View, started: list[Move], job: Job, deadline: int, now: int) -> Move | None:
    """The job's move that is expected to finish first and in time once its busy processor is free; None if there is none."""
    best, best_ns = None, deadline
    for move in job.task.moves[job.position]:
        p = move.processor
        if not p.available:
            continue
        waits = [r.remaining_ns(now) for r in view.processors if r.job is not None and r.mask & p.mask]
        waits += [s.p50_ns for s in started if s.processor.mask & p.mask]
        finish = max(now + max(waits, default=0), p.held_until_ns) + move.left_from_ns(job.last_processor)
        if finish <= best_ns:
            best, best_ns = move, finish
    return best
