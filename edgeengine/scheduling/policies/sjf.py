"""Shortest job first: the least remaining work, ties by deadline (Smith 1956 for the rule)."""

from __future__ import annotations

from edgeengine.events import AnyAction
from edgeengine.scheduling.dropping import DropRule, sift
from edgeengine.scheduling.job import UNREACHABLE_NS, Job
from edgeengine.scheduling.view import View
from edgeengine.scheduling.work_conserving import start_by_priority


def _work(job: Job) -> tuple[int, int, int, int]:
    return (job.remaining_ns, job.deadline_ns or UNREACHABLE_NS, job.task.index, job.index)


class ShortestJob:
    name = "sjf"

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        return drops + start_by_priority(view, sorted(ready, key=_work), now)
