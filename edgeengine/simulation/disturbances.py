"""A plan's effects on running work, together: transfers come first, heat and a first run lengthen, company slows meanwhile."""

from __future__ import annotations

from edgeengine.scheduling.job import Job, Move, ProcessorState
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
        self._ran: set[tuple[str, str, str]] = set()  # task, subgraph, processor
        self._place: dict[tuple[str, int], str] = {}  # in which memory a job's tensors lie

    def begin(self, p: ProcessorState, now: int, duration_ns: int) -> dict[str, int]:
        """The run that `p` was given begins, and takes `duration_ns` undisturbed."""
        assert p.job is not None and p.move is not None
        moved_ns = self._transfers_ns(p, p.job, p.move) if self._effects.links else 0
        factor = self._throttling.factor(p.name, now) * self._first(p.job.task.name, p.move.subgraph, p.name)
        return self._contention.begin(p.name, now, moved_ns + round(duration_ns * factor))

    def end(self, processor: str, now: int) -> dict[str, int]:
        self._throttling.ran(processor, now)
        return self._contention.end(processor, now)

    def _first(self, task: str, subgraph: str, processor: str) -> float:
        """The factor of a first run; 1 for any other."""
        key = (task, subgraph, processor)
        if key in self._ran:
            return 1.0
        self._ran.add(key)
        return self._effects.first_run.get(processor, 1.0)

    def _transfers_ns(self, p: ProcessorState, job: Job, move: Move) -> int:
        """What the subgraph reads to its processor, and a job's last results back to the host."""
        memory, key = self._memory[p.name], (job.task.name, job.index)
        step = self._step[job.task.name, move.subgraph, p.name]
        cost = self._effects.transfer_ns(self._place.get(key, "host"), memory, step.input_bytes)
        if step.stop < job.task.segments:
            self._place[key] = memory
            return cost
        self._place.pop(key, None)
        return cost + self._effects.transfer_ns(memory, "host", step.output_bytes)
