"""Global work-conserving scheduling: the job of highest priority takes the free processor that is fastest for it, at once.

What the classical policies (EDF, RM, LLF, SJF, …) are on processors of unequal speed. A policy supplies the order. Nothing waits
for a faster processor that is busy, and nothing is refused because it would be late.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeengine.events import AnyAction, Start, Wake
from edgeengine.scheduling.job import Job
from edgeengine.scheduling.slack import awaited_ns
from edgeengine.scheduling.view import View


def start_by_priority(view: View, jobs: Iterable[Job], now: int) -> list[AnyAction]:
    """Start jobs in the given order until no processor is free."""
    actions: list[AnyAction] = []
    busy = view.busy_mask
    for job in jobs:
        if busy == view.all_mask:
            break
        best = job.task.best_ns
        free = [m for m in view.moves(job) if view.can_start(m.processor, now, busy)]
        waits = [awaited_ns(view, job, m, now, busy) for m in free]
        now_free = [m for m, release_ns in zip(free, waits, strict=True) if release_ns is None]
        if free and not now_free:
            actions.append(Wake(min(w for w in waits if w is not None)))
        if now_free:
            move = min(now_free, key=lambda m: m.p50_ns + best[m.stop])
            busy |= move.processor.mask
            actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
    return actions
