"""A null provider that goes wrong as told: it raises, is lost, stalls, hangs or hands out NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.clock import ORDER_FINISH, Clock
from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.providers.null import NullProvider
from edgeengine.errors import DeviceError, DeviceLost
from edgeengine.spec import Processor, Step

Fault = str  # "" | "raise" | "lost" | "nan" | "stall" | "hang"
STALL_NS = 50_000_000
HANG_NS = 3_600_000_000_000  # nobody waits that long; then the thread ends, as tests want it


class Faulty(NullProvider):
    """`fault(processor, run)` says what the processor's run number `run`, probes counted, does wrong."""

    def __init__(
        self, clock: Clock, processors: tuple[Processor, ...], fault: Callable[[str, int], Fault], hang_ns: int = HANG_NS
    ):
        super().__init__(clock, processors)
        self.clock, self.fault, self.hang_ns = clock, fault, hang_ns
        self.runs = {p.name: 0 for p in processors}
        self.index = {p.name: i for i, p in enumerate(processors)}

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        return _Faulty(self, super().load(bundle, step, processor), processor.name)


class _Faulty:
    placement = None

    def __init__(self, provider: Faulty, inner: Executable, processor: str):
        self._provider, self._inner, self._processor = provider, inner, processor

    def run(self, feeds: Tensors) -> Tensors:
        provider = self._provider
        number = provider.runs[self._processor]
        provider.runs[self._processor] += 1
        outputs = self._inner.run(feeds)
        fault = provider.fault(self._processor, number)
        if fault == "raise":
            raise DeviceError("it broke")
        if fault == "lost":
            raise DeviceLost("it is gone")
        if fault in ("stall", "hang"):
            pause_ns = provider.hang_ns if fault == "hang" else STALL_NS
            provider.clock.sleep_until(provider.clock.now_ns() + pause_ns, ORDER_FINISH, provider.index[self._processor])
        if fault == "nan":
            return {name: np.full_like(array, np.nan) for name, array in outputs.items()}
        return outputs
