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
        waits: list[int] = []
        for move in job.task.fastest[job.position]:
            if not view.can_start(move.processor, now, busy):
                continue
            release_ns = awaited_ns(view, job, move, now, busy)
            if release_ns is None:
                busy |= move.processor.mask
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
                break
            waits.append(release_ns)
        else:
            if waits:
                actions.append(Wake(min(waits)))
    return actions
