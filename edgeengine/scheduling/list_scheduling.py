"""List scheduling: walk the jobs in a given order, start each on the free processor that finishes it first.

What FIFO, EDF and their like share; a policy supplies the order. Drops what can no longer finish: in overload that alone
separates a useful EDF from a collapsing one.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeengine.events import AnyAction, Drop, Start
from edgeengine.scheduling.job import Job
from edgeengine.scheduling.view import View

CANNOT_FINISH = "cannot finish in time"


def start_in_order(view: View, jobs: Iterable[Job], now: int, early_drop: bool) -> list[AnyAction]:
    """Work-conserving. A job is dropped when now + its least expected remaining time lies past its deadline."""
    actions: list[AnyAction] = []
    busy = view.busy_mask
    for job in jobs:
        task = job.task
        if early_drop and job.deadline_ns is not None and now + task.best_ns[job.position] > job.deadline_ns:
            actions.append(Drop(task.name, job.index, CANNOT_FINISH))
            continue
        if busy == view.all_mask:
            if not early_drop:
                break
            continue
        best, best_ns = None, 0
        for move in task.moves[job.position]:
            p = move.processor
            if p.available and not (p.mask & busy) and p.held_until_ns <= now:
                left = move.p50_ns + task.best_ns[move.stop]
                if best is None or left < best_ns:
                    best, best_ns = move, left
        if best is not None:
            busy |= best.processor.mask
            actions.append(Start(task.name, job.index, best.subgraph, best.processor.name))
    return actions
