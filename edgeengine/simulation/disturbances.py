"""A plan's effects on running work, together: transfers come first, heat and a first run lengthen, company slows meanwhile."""

from __future__ import annotations

from edgeengine.events import Start
from edgeengine.simulation.contention import Contention
from edgeengine.simulation.throttling import Throttling
from edgeengine.spec import Effects, Plan


class Disturbances:
    """Asked at every begin and end of a run; answers when each run under way will now end, by processor."""

    def __init__(self, plan: Plan, effects: Effects):
        self._effects = effects
        self._contention = Contention(effects.slowdown)
        self._throttling = Throttling(effects.throttle)
        self._memory = {p.name: p.memory for p in plan.processors}
        self._step = {(t.task, s.subgraph, s.processor): s for t in plan.tasks for s in t.steps}
        self._segments = {t.task: t.segments for t in plan.tasks}
        self._ran: set[tuple[str, str, str]] = set()  # task, subgraph, processor
        self._place: dict[tuple[str, int], str] = {}  # in which memory a job's tensors lie

    def begin(self, start: Start, now: int, duration_ns: int) -> dict[str, int]:
        moved_ns = self._transfers_ns(start) if self._effects.links else 0
        factor = self._throttling.factor(start.processor, now) * self._first(start)
        return self._contention.begin(start.processor, now, moved_ns + round(duration_ns * factor))

    def end(self, processor: str, now: int) -> dict[str, int]:
        self._throttling.ran(processor, now)
        return self._contention.end(processor, now)

    def _first(self, start: Start) -> float:
        """The factor of a first run; 1 for any other."""
        key = (start.task, start.subgraph, start.processor)
        if key in self._ran:
            return 1.0
        self._ran.add(key)
        return self._effects.first_run.get(start.processor, 1.0)

    def _transfers_ns(self, start: Start) -> int:
        """What the subgraph reads to its processor, and a job's last results back to the host."""
        step, job = self._step[start.task, start.subgraph, start.processor], (start.task, start.index)
        memory = self._memory[start.processor]
        cost = self._effects.transfer_ns(self._place.get(job, "host"), memory, step.input_bytes)
        if step.stop < self._segments[start.task]:
            self._place[job] = memory
            return cost
        self._place.pop(job, None)
        return cost + self._effects.transfer_ns(memory, "host", step.output_bytes)
