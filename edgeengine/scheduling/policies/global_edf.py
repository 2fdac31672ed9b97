"""Global earliest deadline first as published (Liu & Layland 1973; SimSo's global EDF for the form on several processors):
the least absolute deadline goes first, on any free processor, and nothing is dropped.

Classes of criticality do not count. Preemption happens between subgraphs only.
"""

from __future__ import annotations

from edgeengine.events import AnyAction
from edgeengine.scheduling.dropping import DropRule, sift
from edgeengine.scheduling.job import UNREACHABLE_NS, Job
from edgeengine.scheduling.view import View
from edgeengine.scheduling.work_conserving import start_by_priority


def _deadline(job: Job) -> tuple[int, int, int, int]:
    return (job.deadline_ns or UNREACHABLE_NS, job.release_ns, job.task.index, job.index)


class GlobalEdf:
    name = "global-edf"

    def __init__(self, drop: DropRule = "never"):
        self.drop = drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        drops, ready = sift(view, now, self.drop)
        return drops + start_by_priority(view, sorted(ready, key=_deadline), now)
