"""The null provider: spends a step's p50 on the clock and computes nothing.

Scheduling, planning and the live engine are tested on it without hardware; on a virtual clock it spends no real time either.
"""

from __future__ import annotations

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.clock import ORDER_FINISH, Clock
from edgeengine.devices.providers.base import Executable, Tensors
from edgeengine.spec import Placement, Processor, Step, TensorSpec
from edgeengine.spec.tensor import ITEM_BYTES


class NullProvider:
    name = "null"

    def __init__(self, clock: Clock, processors: tuple[Processor, ...] = ()):
        self._clock, self._processors = clock, processors

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        return list(self._processors)

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        outputs = bundle.manifest.subgraph(step.subgraph).outputs if bundle is not None else ()
        index = next((i for i, p in enumerate(self._processors) if p.name == processor.name), 0)
        return _NullExecutable(self._clock, max(step.latency.p50_ns, 1), index, outputs)

    def close(self) -> None:
        pass


class _NullExecutable:
    def __init__(self, clock: Clock, duration_ns: int, index: int, outputs: tuple[TensorSpec, ...]):
        self._clock, self._duration_ns, self._index = clock, duration_ns, index
        self._outputs = {t.name: _zeros(t) for t in outputs}
        self.placement: Placement | None = None

    def run(self, feeds: Tensors) -> Tensors:
        self._clock.sleep_until(self._clock.now_ns() + self._duration_ns, ORDER_FINISH, self._index)
        return {name: value.copy() for name, value in self._outputs.items()}


def _zeros(spec: TensorSpec) -> np.ndarray:
    shape = tuple(d if isinstance(d, int) else 1 for d in spec.shape)
    return np.zeros(shape, spec.dtype if spec.dtype in ITEM_BYTES else object)
