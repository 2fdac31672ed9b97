"""A described device: figures that say how fast it is, each with its unit, its source, and how far to trust it.

The records of a device profile file, `profiles/<vendor>/<device>.toml` (see devices.profiles). A processor of the profile may
stand for several of the engine's: one per core.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from edgeengine.spec.processor import Processor

Status = Literal["seen", "derived", "fitted", "guessed"]


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A number with its unit, its source, and how far to trust it: `seen` there, `derived` from what is by arithmetic, `fitted`
    to measurements, or `guessed` (the source then says why). `low` and `high` bound it at 90 %, where that is known.
    """

    value: float
    unit: str
    source: str
    status: Status
    low: float | None = None
    high: float | None = None


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """CPU cores of one kind. They are named core0, core1, …, on from those of the clusters before."""

    name: str
    core: str
    cores: Figure
    clock: Figure | None = None


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The memory that all processors share."""

    kind: str = ""
    bandwidth: Figure | None = None
    size: Figure | None = None


class Throttling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As spec.Throttle: time constant, share of time that may be busy for ever, slowest factor."""

    tau: Figure
    sustained: Figure
    slowest: Figure


class Speed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How fast a processor runs models of one precision under the runtime that was measured.

    `figures` are the costs of work by class (see devices.costs); `operators` what single operators cost beyond them. `overhead`
    and `rate` are a line through the same measurements, latency = overhead + MACs / rate: to compare processors by, and for work
    of which nothing but its MACs is known. `measured`: so many rows. `models`: milliseconds by model_key, as measured; of a
    calibrated device its like's, scaled. A `throughput`, MACs per second with several frames under way, says nothing of latency.
    """

    runtime: str
    measured: int = 0
    overhead: Figure | None = None
    rate: Figure | None = None
    figures: dict[str, Figure] = {}
    operators: dict[str, Figure] = {}
    throughput: Figure | None = None
    models: dict[str, float] = {}

    @property
    def has_line(self) -> bool:
        return self.overhead is not None and self.rate is not None


class ProcessorProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`each`: not one processor that holds all `resources`, but one for each of them, named with a number.

    `runs` names the table of operators that its runtime takes (profiles/operators.toml), "" for all. `speed` is by precision:
    "float" or "int8". `slowdown` by processor: how many times as long its runs take while that one runs too.
    """

    name: str
    kind: Literal["cpu", "gpu", "npu"]
    resources: tuple[str, ...]
    description: str
    each: bool = False
    threads: int = 1
    memory: str = "host"
    runs: str = ""
    clock: Figure | None = None
    power: Figure | None = None
    throttling: Throttling | None = None
    slowdown: dict[str, Figure] = {}
    speed: dict[str, Speed] = {}

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The engine's processors that it stands for."""
        held = [(r,) for r in self.resources] if self.each else [self.resources]
        names = [f"{self.name}{i}" for i in range(len(held))] if self.each else [self.name]
        power_w = None if self.power is None else self.power.value
        return tuple(
            Processor(
                name,
                self.kind,
                "simulated",
                resources,
                threads=self.threads,
                memory=self.memory,
                core_kind=self.name,
                power_w=power_w,
            )
            for name, resources in zip(names, held, strict=True)
        )


class LinkProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Between two memories, either way."""

    one: str
    other: str
    latency: Figure
    bandwidth: Figure


class Tail(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How latencies spread about their median, as multiples of it. `max` is the greatest of `runs` runs."""

    min: Figure
    p90: Figure
    p99: Figure
    max: Figure
    runs: Figure


class Mode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A clock or power mode, chosen as DEVICE:MODE. `slower` by processor: how many times as long its runs take than as measured;
    of the engine's processors those that are `off` do not exist in the mode.
    """

    name: str
    description: str
    power: Figure | None = None
    slower: dict[str, Figure] = {}
    off: tuple[str, ...] = ()


class DeviceProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One described device. `name` is vendor/device, from the file's place, and the mode it is in where one was chosen.

    `first_run`: how many times as long the first run of a subgraph takes. `slowdown`: how many times as long a run takes beside
    one on a processor of another kind; `throttling`: how heat slows every processor; both unless a processor says otherwise.
    """

    description: str
    chip: str
    power: Figure | None = None
    first_run: Figure | None = None
    slowdown: Figure | None = None
    memory: Memory | None = None
    tail: Tail | None = None
    throttling: Throttling | None = None
    cluster: tuple[Cluster, ...] = ()
    processor: tuple[ProcessorProfile, ...] = ()
    link: tuple[LinkProfile, ...] = ()
    mode: tuple[Mode, ...] = ()
    name: str = ""

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The engine's processors."""
        return tuple(made for p in self.processor for made in p.processors)

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """(where, figure) of every figure: "cluster big, clock", "processor npu, speed.int8.rate", …"""
        return _figures(self, "")


def _figures(value: object, where: str) -> Iterator[tuple[str, Figure]]:
    if isinstance(value, Figure):
        yield where, value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _figures(getattr(value, field), _within(where, field))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _figures(inner, _within(where, key))
    elif isinstance(value, tuple):
        for inner in value:
            if isinstance(inner, msgspec.Struct):
                yield from _figures(inner, f"{where} {_name(inner)}, ")


def _within(where: str, key: str) -> str:
    return f"{where}{key}" if not where or where.endswith(", ") else f"{where}.{key}"


def _name(entry: msgspec.Struct) -> str:
    return f"{entry.one}-{entry.other}" if isinstance(entry, LinkProfile) else str(getattr(entry, "name", ""))
