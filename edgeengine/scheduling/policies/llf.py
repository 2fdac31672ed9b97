"""Least laxity first (Mok 1983): the job with the least deadline - now - remaining work goes first.

SimSo sorts again every millisecond; here it is at every event, which is when a decision can change anything between
subgraphs that are not preempted.
"""

from __future__ import annotations

from edgeengine.events import AnyAction
from edgeengine.scheduling.dropping import DropRule, sift
from edgeengine.scheduling.job import UNREACHABLE_NS, Job
from edgeengine.scheduling.view import View
from edgeengine.scheduling.work_conserving import start_by_priority


def _laxity(job: Job) -> tuple[int, int, int]:
    """Without `now`, which is the same for all."""
    return ((job.deadline_ns or UNREACHABLE_NS) - job.remaining_ns, job.task.index, job.index)


class LeastLaxity:
    name = "llf"

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        return drops + start_by_priority(view, sorted(ready, key=_laxity), now)
