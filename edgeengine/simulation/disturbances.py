"""A plan's effects on running work, together: transfers come first, heat lengthens, company slows while it lasts."""

from __future__ import annotations

from edgeengine.scheduling.job import ProcessorState
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
        self._place: dict[tuple[str, int], str] = {}  # in which memory a job's tensors lie

    def begin(self, p: ProcessorState, now: int, duration_ns: int) -> dict[str, int]:
        """The run that `p` was given begins, and takes `duration_ns` undisturbed."""
        moved_ns = self._transfers_ns(p) if self._effects.links else 0
        factor = self._throttling.factor(p.name, now)
        return self._contention.begin(p.name, now, moved_ns + round(duration_ns * factor))

    def end(self, processor: str, now: int) -> dict[str, int]:
        self._throttling.ran(processor, now)
        return self._contention.end(processor, now)

    def _transfers_ns(self, p: ProcessorState) -> int:
        """What the subgraph reads to its processor, and a job's last results back to the host."""
        assert p.job is not None and p.move is not None
        task, memory = p.job.task.name, self._memory[p.name]
        step, job = self._step[task, p.move.subgraph, p.name], (task, p.job.index)
        cost = self._effects.transfer_ns(self._place.get(job, "host"), memory, step.input_bytes)
        if step.stop < p.job.task.segments:
            self._place[job] = memory
            return cost
        self._place.pop(job, None)
        return cost + self._effects.transfer_ns(memory, "host", step.output_bytes)
