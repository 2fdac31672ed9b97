"""Earliest deadline first within a criticality class, the higher class first; non-preemptive, at subgraph granularity.

Guaranteed tasks go before all (see scheduling.guaranteed). A running subgraph is never interrupted: a job gives way only between
its subgraphs (Liu & Layland 1973 for the rule; Jeffay et al. 1991 for its non-preemptive form).
"""

from __future__ import annotations

from operator import attrgetter

from edgeengine.events import AnyAction
from edgeengine.scheduling.guaranteed import start_guaranteed
from edgeengine.scheduling.list_scheduling import start_in_order
from edgeengine.scheduling.view import View
from edgeengine.scheduling.weakly_hard import is_guaranteed

urgency = attrgetter("urgency")  # sort key of jobs: criticality class, then deadline, then release


class Edf:
    name = "edf"

    def __init__(self, early_drop: bool = True):
        self.early_drop = early_drop

    def decide(self, view: View, now: int) -> list[AnyAction]:
        if not view.guaranteed:
            return start_in_order(view, sorted(view.ready, key=urgency), now, self.early_drop)
        first, busy = start_guaranteed(view, now)
        rest = (j for j in view.ready if not is_guaranteed(j))
        return first + start_in_order(view, sorted(rest, key=urgency), now, self.early_drop, busy)
