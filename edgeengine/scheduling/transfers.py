"""What moving tensors between memories adds to a plan's latencies, as the simulator charges it (see simulation.disturbances).

A subgraph reads its inputs to its processor's memory, a job's last results go back to the host. What several consumers read is
moved once: the plan counts the bytes of a border, not of its readers.
"""

from __future__ import annotations

from edgeengine.spec import Plan, Step


class Transfers:
    """Costs in nanoseconds, of steps of one plan; nothing without links between memories."""

    def __init__(self, plan: Plan):
        self._effects = plan.effects
        self._memory = {p.name: p.memory for p in plan.processors}

    @property
    def any(self) -> bool:
        return self._effects is not None and bool(self._effects.links)

    def fixed_ns(self, step: Step, segments: int) -> int:
        """What the step costs wherever the job was before: a first step's inputs from the host, a last one's results to it."""
        return self._ns("host", step, step.input_bytes if step.start == 0 else 0) + self._ns(
            "host", step, step.output_bytes if step.stop == segments else 0
        )

    def switch_ns(self, step: Step) -> dict[str, int]:
        """By the processor that ran the part before: what it costs to read what that left."""
        return {name: self._ns(memory, step, step.input_bytes) for name, memory in self._memory.items()} if step.start else {}

    def _ns(self, memory: str, step: Step, nbytes: int) -> int:
        if self._effects is None or not nbytes:
            return 0
        return self._effects.transfer_ns(memory, self._memory[step.processor], nbytes)
