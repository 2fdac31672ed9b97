"""Earliest deadline first within a criticality class, the higher class first; non-preemptive, at subgraph granularity.

Guaranteed tasks go before all (see scheduling.guaranteed). A running subgraph is never interrupted: a job gives way only between
its subgraphs (Liu & Layland 1973 for the rule; Jeffay et al. 1991 for its non-preemptive form).
"""

from __future__ import annotations

from edgeengine.events import AnyAction
from edgeengine.scheduling.guaranteed import start_guaranteed
from edgeengine.scheduling.job import UNREACHABLE_NS, Job
from edgeengine.scheduling.list_scheduling import start_in_order
from edgeengine.scheduling.view import View
from edgeengine.scheduling.weakly_hard import is_guaranteed


def urgency(job: Job) -> tuple[int, int, int, int, int]:
    """Sort key: criticality class, then deadline, then release."""
    deadline = UNREACHABLE_NS if job.deadline_ns is None else job.deadline_ns
    return (job.task.rank, deadline, job.release_ns, job.task.index, job.index)


class Edf:
    name = "edf"

    def __init__(self, early_drop: bool = True):
        self.early_drop = early_drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        first, busy = start_guaranteed(view, now)
        rest = (j for j in view.ready if not is_guaranteed(j))
        return first + start_in_order(view, sorted(rest, key=urgency), now, self.early_drop, busy)
