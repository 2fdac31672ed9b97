"""When a policy gives a waiting job up: never, once its deadline has passed (as XRBench's runtime does with queued frames), or
as soon as it can no longer finish in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from edgeengine.events import AnyAction, Drop
from edgeengine.scheduling.job import Job
from edgeengine.scheduling.view import View

CANNOT_FINISH = "cannot finish in time"
OVERDUE = "its deadline passed while it waited"

DropRule = Literal["never", "overdue", "hopeless"]


def sift(view: View, now: int, rule: DropRule) -> tuple[list[AnyAction], list[Job]]:
    """The drops that `rule` asks for, and the ready jobs that stay. A late training step is still a step: none is dropped."""
    if rule == "never":
        return [], list(view.ready)
    drops: list[AnyAction] = []
    kept = []
    for job in view.ready:
        deadline = None if job.task.train else job.deadline_ns
        if deadline is not None and rule == "hopeless" and now + job.remaining_ns > deadline:
            drops.append(Drop(job.task.name, job.index, CANNOT_FINISH))
        elif deadline is not None and rule == "overdue" and now > deadline and job.position == 0:
            drops.append(Drop(job.task.name, job.index, OVERDUE))
        else:
            kept.append(job)
    return drops, kept


def by_release(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda j: (j.release_ns, j.task.index, j.index))
