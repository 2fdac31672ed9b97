"""Whole models on one processor: what a dispatcher that knows no subgraphs does with a job that is cut into some.

A job that began on a processor goes on there before anything else, as if it were one run.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeengine.events import AnyAction, Start
from edgeengine.scheduling.job import UNREACHABLE_NS, Job, Move
from edgeengine.scheduling.view import View


def whole_moves(view: View, job: Job) -> list[tuple[int, Move]]:
    """The moves that begin a stay on one available processor to the job's end, with the stay's length; any move where no
    processor can run all that is left.
    """
    stay = job.task.stay_ns
    stays = [(stay[m.processor.index][m.stop], m) for m in view.moves(job) if m.processor.available]
    whole = [(m.p50_ns + left, m) for left, m in stays if left < UNREACHABLE_NS]
    return whole or [(m.p50_ns + job.task.best_ns[m.stop], m) for _, m in stays]


def go_on(view: View, jobs: Iterable[Job], now: int) -> tuple[list[AnyAction], list[Job], int]:
    """Start the next subgraph of each begun job where it is; returns also the jobs that have not begun, and the busy mask."""
    actions: list[AnyAction] = []
    waiting = []
    busy = view.busy_mask
    for job in jobs:
        here = [m for _, m in whole_moves(view, job) if m.processor is job.last_processor]
        if job.position == 0 or not here:
            waiting.append(job)
        elif view.can_start(here[0].processor, now, busy):
            busy |= here[0].processor.mask
            actions.append(Start(job.task.name, job.index, here[0].subgraph, here[0].processor.name))
    return actions, waiting, busy
