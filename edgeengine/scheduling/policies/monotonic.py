"""Rate monotonic: the smallest period first (Liu & Layland 1973). Deadline monotonic: the smallest relative deadline first
(Leung & Whitehead 1982). Fixed priorities by task; tasks without the figure come last.
"""

from __future__ import annotations

from edgeengine.events import AnyAction
from edgeengine.scheduling.dropping import DropRule, sift
from edgeengine.scheduling.job import UNREACHABLE_NS, Job, Task
from edgeengine.scheduling.view import View
from edgeengine.scheduling.work_conserving import start_by_priority


def period_ns(task: Task) -> int:
    """Of the task, or of the ancestor that releases it."""
    source: Task | None = task
    while source is not None and source.period_ns is None:
        source = source.parent
    return UNREACHABLE_NS if source is None or source.period_ns is None else source.period_ns


def by_period(job: Job) -> tuple[int, int, int]:
    return (period_ns(job.task), job.task.index, job.index)


def by_deadline(job: Job) -> tuple[int, int, int]:
    return (job.task.deadline_ns or UNREACHABLE_NS, job.task.index, job.index)


class RateMonotonic:
    name = "rm"
    _key = staticmethod(by_period)

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        return drops + start_by_priority(view, sorted(ready, key=self._key), now)


class DeadlineMonotonic(RateMonotonic):
    name = "dm"
    _key = staticmethod(by_deadline)
