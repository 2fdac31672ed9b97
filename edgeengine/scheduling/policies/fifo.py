"""First in, first out: jobs in order of release, whatever their deadline or criticality."""

from __future__ import annotations

from edgeengine.events import AnyAction
from edgeengine.scheduling.job import Job
from edgeengine.scheduling.list_scheduling import start_in_order
from edgeengine.scheduling.view import View


def _release(job: Job) -> tuple[int, int, int]:
    return (job.release_ns, job.task.index, job.index)


class Fifo:
    name = "fifo"

    def __init__(self, early_drop: bool = True):
        self.early_drop = early_drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        return start_in_order(view, sorted(view.ready, key=_release), now, self.early_drop)
