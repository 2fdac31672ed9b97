"""Training in simulation runs out of work as it does live: a step comes when the samples that ask for it have come."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from edgeengine.events import AnyEvent, Released
from edgeengine.workload import Workload


class Lessons:
    """The samples of training tasks whose workload says how many come a second (`learn.samples_hz`), evenly spread.

    Step i is due at (i + 1) / steps_hz. Of other training tasks the next step is always due.
    """

    def __init__(self, workload: Workload, stop_ns: int):
        rates = {t.name: t.learn.steps_hz for t in workload.tasks if t.learn is not None}
        self._steps_hz = {name: hz for name, hz in rates.items() if hz is not None}
        self._stop_ns = stop_ns

    def sort(self, events: Sequence[AnyEvent], now: int) -> tuple[list[AnyEvent], list[Released]]:
        """The events without the steps whose samples have not come by `now`; these, at the time when they will have."""
        if not self._steps_hz:
            return list(events), []
        due: list[AnyEvent] = []
        later: list[Released] = []
        for event in events:
            due_ns = self._due_ns(event) if isinstance(event, Released) else 0
            if not isinstance(event, Released) or due_ns <= now:
                due.append(event)
            elif due_ns < self._stop_ns:
                later.append(msgspec.structs.replace(event, at_ns=due_ns, release_ns=due_ns))
        return due, later

    def _due_ns(self, step: Released) -> int:
        steps_hz = self._steps_hz.get(step.task)
        return 0 if steps_hz is None else math.ceil((step.index + 1) / steps_hz * 1e9)
