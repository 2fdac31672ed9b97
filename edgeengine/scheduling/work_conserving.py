"""Global work-conserving scheduling: the job of highest priority takes the free processor that is fastest for it, at once.

What the classical policies (EDF, RM, LLF, SJF, …) are on processors of unequal speed. A policy supplies the order. Nothing waits
for a faster processor that is busy, and nothing is refused because it would be late.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeengine.events import AnyAction, Start, Wake
from edgeengine.scheduling.job import Job
from edgeengine.scheduling.slack import first_startable
from edgeengine.scheduling.view import View


def start_by_priority(view: View, jobs: Iterable[Job], now: int) -> list[AnyAction]:
    """Start jobs in the given order until no processor is free."""
    actions: list[AnyAction] = []
    busy = view.busy_mask
    for job in jobs:
        if busy == view.all_mask:
            break
        move, release_ns = first_startable(view, job, now, busy)
        if move is not None:
            busy |= move.processor.mask
            actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        elif release_ns is not None:
            actions.append(Wake(release_ns))
    return actions
