"""What a subgraph is expected to take on a described processor: its speed, what it leaves to the CPU, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edgeengine.bundle import Bundle
from edgeengine.devices.costs import predict
from edgeengine.devices.effects import effects_of
from edgeengine.devices.profiles import operator_table
from edgeengine.planning.estimates import from_macs
from edgeengine.profiling.described import Expected
from edgeengine.spec import SubgraphSpec
from edgeengine.spec.device import DeviceProfile, ProcessorProfile, Speed
from edgeengine.spec.features import Features
from edgeengine.spec.profile import ESTIMATED, PREDICTED

# A gradient takes two products for each one of the forward pass, for the input's and for the weights' (Griewank & Walther,
# Evaluating Derivatives, 2008, bound it at four times the function); how fast a processor is at them was measured nowhere.
TRAINING, TRAINING_LOW, TRAINING_HIGH = 3.0, 2.0, 6.0

CALL_NS = 10_000  # of a run that computes next to nothing, which no table of models has (9 to 16 us for ONNX Runtime on x86-64)

QUANTIZED = frozenset({"QuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"})


class Left(Protocol):
    """A run of nodes that falls back (see graph.fallback.Island)."""

    @property
    def operators(self) -> dict[str, tuple[str, ...]]: ...
    @property
    def features(self) -> Features: ...
    @property
    def read_bytes(self) -> int: ...
    @property
    def written_bytes(self) -> int: ...


# What a processor with this table of operators leaves of a subgraph.
FindLeft = Callable[[Bundle, SubgraphSpec, frozenset[str]], Sequence[Left]]


@dataclass(frozen=True)
class Expectations:
    """Callable as planning's Expect. `training`: a step is one of training, forward and backward."""

    device: DeviceProfile
    find_left: FindLeft
    training: bool = False

    def __call__(self, bundle: Bundle, subgraph: SubgraphSpec, processor: ProcessorProfile) -> Expected | str:
        """Or the reason why the processor cannot run it, with the operator that is in the way where there is one."""
        if self.training and processor.kind != "cpu":
            return "training runs on the CPU"
        precision = "int8" if QUANTIZED & bundle.manifest.whole.op_counts.keys() and not self.training else "float"
        speed = speed_for(processor, precision)
        if isinstance(speed, str):
            return speed
        if subgraph.macs is None:
            return f"no cost rule for {', '.join(subgraph.unknown_ops)}"
        left = self.find_left(bundle, subgraph, operator_table(processor.runs).runs) if processor.runs else ()
        fallback = self._fallback(left, processor)
        if isinstance(fallback, str):
            return fallback
        own = _own(subgraph, sum((i.features for i in left), Features()), speed)
        median, low, high = (TRAINING, TRAINING_LOW, TRAINING_HIGH) if self.training else (1.0, 1.0, 1.0)
        return Expected(
            own.median_ns * median + fallback,
            own.low_ns * low + fallback,
            own.high_ns * high + fallback,
            ESTIMATED if self.training else own.basis,
            _by_operator(left),
            copies=2 * len(left),
        )

    def _fallback(self, left: Sequence[Left], processor: ProcessorProfile) -> float | str:
        """Nanoseconds on the CPU and on the way there and back, for each run of nodes that falls back."""
        if not left:
            return 0.0
        speeds = [speed_for(p, "float") for p in self.device.processor if p.kind == "cpu"]
        known = [s for s in speeds if isinstance(s, Speed)]
        if not known:
            return f"does not take {', '.join(_by_operator(left))} (table {processor.runs}), and there is no CPU to fall back to"
        effects, here = effects_of(self.device), processor.memory
        there = sum(effects.transfer_ns(here, "host", i.read_bytes) for i in left)
        back = sum(effects.transfer_ns("host", here, i.written_bytes) for i in left)
        return there + back + sum(min(_fallen_ns(i.features, s) for s in known) for i in left)


def _fallen_ns(features: Features, cpu: Speed) -> float:
    """What nodes that fell back take on the CPU. It is called within the run of the whole: without the overhead of a call."""
    if cpu.figures:
        return 1e6 * predict(features, {name: f for name, f in cpu.figures.items() if name != "call"}).median_ms
    assert cpu.rate is not None
    return features.macs / cpu.rate.value


def _own(subgraph: SubgraphSpec, left: Features, speed: Speed) -> Expected:
    """Without what is left to the CPU: by the processor's costs where they are known, else by its line."""
    assert subgraph.macs is not None
    if subgraph.features is None or not speed.figures:
        return from_macs(subgraph.macs - left.macs, speed)
    median_ms, low_ms, high_ms = predict(subgraph.features - left, speed.figures)
    return Expected(1e6 * median_ms + CALL_NS, 1e6 * low_ms + CALL_NS / 2, 1e6 * high_ms + 2 * CALL_NS, PREDICTED)


def speed_for(processor: ProcessorProfile, precision: str) -> Speed | str:
    """The processor's speed at a precision, or why it has none. A quantized model runs in float where int8 was not measured."""
    for key in ("int8", "float") if precision == "int8" else ("float",):
        speed = processor.speed.get(key)
        if speed is not None and speed.has_line:
            return speed
    known = [k for k, s in processor.speed.items() if s.has_line]
    if known:
        return f"{precision} models were not measured on it, only {' and '.join(known)}"
    only = any(s.throughput is not None for s in processor.speed.values())
    return "its throughput is known, its latencies are not" if only else "no latencies are known"


def _by_operator(left: Sequence[Left]) -> dict[str, tuple[str, ...]]:
    """The names of the nodes left, over all islands."""
    found: dict[str, tuple[str, ...]] = {}
    for island in left:
        for operator, names in island.operators.items():
            found[operator] = found.get(operator, ()) + names
    return found
