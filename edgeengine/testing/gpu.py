"""A GPU that is not there: a provider with a memory of its own, a queue and copies both ways, whose faults can be switched on.

Values come from ONNX Runtime's CPU provider, time passes on the clock given. Everything that measures, plans or runs on a GPU is
proven on it: on a `VirtualClock` to the nanosecond, on a `MonotonicClock` in real time.

    clock = VirtualClock()
    gpu = FakeGpu(clock, compute_ns=2_000_000, faults=Faults(early_return=True))
    processor, = gpu.discover((0,))
    executable = gpu.load(bundle, step, processor)

The latency of a run is `launch_ns` + bytes in and out x `copy_ns_per_byte` + `compute_ns`, and what the faults add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.clock import ORDER_FINISH, Clock
from edgeengine.devices.providers.base import Executable, Tensors
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.errors import DeviceLost
from edgeengine.spec import Fallback, Placement, Processor, Step, SubgraphSpec


@dataclass(frozen=True)
class Faults:
    """What is wrong with the GPU; nothing by default.

    Attributes:
        early_return: run() returns when the work is queued. Its outputs are NaN (or the greatest integer) until the device is
            asked again after the work's end.
        wrong: added to the first element of every floating-point output.
        first_shape_ns: added to the first run of each subgraph at each set of input shapes.
        unsupported: operators that silently run on the CPU, `fallback_ns` each and with a copy out and one back in.
        told: whether the placement owns up to them (False: no placement is given, as by a runtime that does not tell).
        corun: factor on a run that starts while another processor of this provider is busy.
        switch_ns: added when the processor ran another subgraph before.
        lost_after: runs after which every run raises DeviceLost (the device is gone, or another process holds it).
    """

    early_return: bool = False
    wrong: float = 0.0
    first_shape_ns: int = 0
    unsupported: frozenset[str] = frozenset()
    told: bool = True
    fallback_ns: int = 1_000_000
    corun: float = 1.0
    switch_ns: int = 0
    lost_after: int | None = None


class _Queue:
    """The work of one processor, in order. `free_at` is when the last of it ends."""

    def __init__(self, index: int) -> None:
        self.index, self.free_at, self.last = index, 0, ""
        self.unfinished: list[tuple[int, Tensors, Tensors]] = []  # done at, arrays handed out, their values

    def settle(self, now: int) -> None:
        """Write the values of work that has ended into what early returns handed out."""
        for done, handed, values in self.unfinished:
            if done <= now:
                for name, array in handed.items():
                    array[...] = values[name]
        self.unfinished = [u for u in self.unfinished if u[0] > now]


class FakeGpu:
    """A provider of `count` GPUs named gpu, gpu1, … with a queue each. `compute_ns` is per subgraph name, or one for all."""

    name = "FakeGpuExecutionProvider"

    def __init__(
        self,
        clock: Clock,
        *,
        compute_ns: int | Mapping[str, int] = 1_000_000,
        launch_ns: int = 20_000,
        copy_ns_per_byte: float = 0.1,
        count: int = 1,
        faults: Faults | None = None,
    ):
        self.clock, self.faults, self.launch_ns, self.copy_ns_per_byte = clock, faults or Faults(), launch_ns, copy_ns_per_byte
        self._compute_ns = compute_ns
        self.queues = {f"gpu{i or ''}": _Queue(i) for i in range(count)}
        self._values = CpuProvider()
        self.runs = 0

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        host = cores[-1] if cores else None
        return [Processor(n, "gpu", self.name, resources=(n,), host_core=host) for n in self.queues]

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        on_cpu = self._values.load(bundle, step, self._values.discover((0,))[0])
        assert bundle is not None  # the CPU provider refused None
        compute_ns = self._compute_ns if isinstance(self._compute_ns, int) else self._compute_ns[step.subgraph]
        return _FakeGpuExecutable(self, self.queues[processor.name], bundle.manifest.subgraph(step.subgraph), on_cpu, compute_ns)

    def close(self) -> None:
        self._values.close()


class _FakeGpuExecutable:
    def __init__(self, gpu: FakeGpu, queue: _Queue, subgraph: SubgraphSpec, on_cpu: Executable, compute_ns: int):
        self._gpu, self._queue, self._subgraph, self._on_cpu, self._compute_ns = gpu, queue, subgraph, on_cpu, compute_ns
        self._shapes: set[tuple[tuple[int, ...], ...]] = set()
        self._fallen = {op: n for op, n in subgraph.op_counts.items() if op in gpu.faults.unsupported}
        self.placement: Placement | None = self._placed() if gpu.faults.told else None

    def _placed(self) -> Placement:
        fallen = sum(self._fallen.values())
        nodes = {self._gpu.name: self._subgraph.nodes - fallen, CpuProvider.name: fallen}
        fallback = tuple(
            Fallback(op, tuple(f"{op} #{i}" for i in range(n)), CpuProvider.name, "the fake GPU lacks it")
            for op, n in self._fallen.items()
        )
        return Placement(self._gpu.name, {p: n for p, n in nodes.items() if n}, fallback, copies=2 * fallen)

    def run(self, feeds: Tensors) -> Tensors:
        gpu, queue, faults = self._gpu, self._queue, self._gpu.faults
        gpu.runs += 1
        if faults.lost_after is not None and gpu.runs > faults.lost_after:
            raise DeviceLost(f"{self._subgraph.name}: run failed: the device is lost")
        now = gpu.clock.now_ns()
        queue.settle(now)
        in_device = {t.name: feeds[t.name].copy() for t in self._subgraph.inputs if t.name in feeds}
        computed = self._on_cpu.run(in_device)
        for value in computed.values():
            if faults.wrong and value.dtype.kind == "f" and value.size:
                value.flat[0] += faults.wrong
        start = max(now, queue.free_at)
        queue.free_at = done = start + self._duration_ns(in_device, computed, start)
        if faults.early_return:
            handed = {n: np.full_like(v, np.nan if v.dtype.kind == "f" else _greatest(v.dtype)) for n, v in computed.items()}
            queue.unfinished.append((done, handed, computed))
            gpu.clock.sleep_until(now + gpu.launch_ns, ORDER_FINISH, queue.index)
            return handed
        gpu.clock.sleep_until(done, ORDER_FINISH, queue.index)
        return computed

    def _duration_ns(self, inputs: Tensors, outputs: Tensors, start: int) -> int:
        gpu, faults = self._gpu, self._gpu.faults
        copied = sum(a.nbytes for a in (*inputs.values(), *outputs.values()))
        ns = gpu.launch_ns + gpu.copy_ns_per_byte * copied + self._compute_ns
        ns += sum(self._fallen.values()) * (faults.fallback_ns + 2 * gpu.launch_ns)
        shapes = tuple(a.shape for a in inputs.values())
        if shapes not in self._shapes:
            self._shapes.add(shapes)
            ns += faults.first_shape_ns
        if self._queue.last not in ("", self._subgraph.name):
            ns += faults.switch_ns
        self._queue.last = self._subgraph.name
        if any(q is not self._queue and q.free_at > start for q in gpu.queues.values()):
            ns *= faults.corun
        return round(ns)


def _greatest(dtype: np.dtype) -> int:
    return int(np.iinfo(dtype).max) if dtype.kind in "iu" else 1
