"""A live engine whose subgraphs note when they are entered and left: where the engine's own time begins and ends.

One single-core processor, so that each gap between two runs is the engine's alone.
"""

from __future__ import annotations

import os
import threading
from time import monotonic_ns

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Executable, Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine import Engine
from edgeengine.planning import plan_from_latencies
from edgeengine.spec import Processor, Step
from edgeengine.workload import parse_workload

CALLERS = {"caller slept": 0.003, "back to back": 0.0}  # seconds of sleep before each submit

# Jobs are submitted one by one. "gate" holds the worker while a queue of others builds up behind it.
WORKLOAD = """
[[task]]
name = "chain"
segments = 6
latency_ms = {{ "{processor}" = 0.06 }}
[[task]]
name = "single"
latency_ms = {{ "{processor}" = 0.01 }}
[[task]]
name = "gate"
criticality = "high"
latency_ms = {{ "{processor}" = 0.01 }}
"""


def one_core() -> Processor:
    """The last core this process may use: the submitting thread more likely sits on the first."""
    available = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (0,)
    return [p for p in CpuProvider().discover(available) if p.threads == 1][-1]


def noop_engine(provider: StampedProvider, processor: Processor) -> Engine:
    """An engine with the tasks of WORKLOAD on `processor`, whose subgraphs do nothing."""
    workload = parse_workload(WORKLOAD.format(processor=processor.name).encode())
    plan = plan_from_latencies(workload, (processor,))
    return Engine(workload, plan, providers={processor.provider: provider})


class StampedProvider:
    """Wraps a provider (None: subgraphs that do nothing). `stamps` lists (entered, left) of every run, in order.

    The task "gate" is left only when `gate` is set.
    """

    name = "stamped"

    def __init__(self, inner: Provider | None = None):
        self._inner = inner
        self.stamps: list[tuple[int, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        return self._inner.discover(cores) if self._inner is not None else []

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        inner: Executable = _Noop(self.gate) if self._inner is None else self._inner.load(bundle, step, processor)
        return _Stamped(inner, self.stamps)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()


class _Noop:
    def __init__(self, gate: threading.Event):
        self._gate = gate

    def run(self, feeds: Tensors) -> Tensors:
        if not self._gate.is_set():
            self._gate.wait()
        return {}


class _Stamped:
    def __init__(self, inner: Executable, stamps: list[tuple[int, int]]):
        self._run, self._note = inner.run, stamps.append

    def run(self, feeds: Tensors) -> Tensors:
        entered_ns = monotonic_ns()
        outputs = self._run(feeds)
        self._note((entered_ns, monotonic_ns()))
        return outputs
