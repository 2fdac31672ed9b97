"""Speeds other than those measured: a device in one of its clock or power modes, a processor that is like another."""

from __future__ import annotations

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec.device import DeviceProfile, Figure, Mode, ProcessorProfile, Speed, Status

SEPARATOR = ":"  # DEVICE:MODE


def in_mode(profile: DeviceProfile, name: str) -> DeviceProfile:
    """The device in the mode called `name`. Raises UserError naming the modes it has."""
    mode = next((m for m in profile.mode if m.name == name), None)
    if mode is None:
        known = ", ".join(m.name for m in profile.mode)
        raise UserError(f"{profile.name} has no mode {name!r}; it has {known or 'none'}")
    processors = tuple(p for one in profile.processor if (p := _in_mode(one, mode)).resources)
    power = mode.power or profile.power
    return msgspec.structs.replace(profile, name=f"{profile.name}{SEPARATOR}{name}", power=power, processor=processors, mode=())


def _in_mode(processor: ProcessorProfile, mode: Mode) -> ProcessorProfile:
    on = tuple(r for p in processor.processors if p.name not in mode.off for r in p.resources)
    slower = mode.slower.get(processor.name)
    if slower is None:
        return msgspec.structs.replace(processor, resources=on)
    speed = {k: faster(s, 1 / slower.value, slower.source, slower.status) for k, s in processor.speed.items()}
    return msgspec.structs.replace(processor, resources=on, speed=speed)


def faster(speed: Speed, factor: float, source: str, status: Status) -> Speed:
    """The speed of a processor `factor` times as fast: times ("ms", "ms/GMAC") shrink, rates ("GMAC/s") grow."""

    def scaled(f: Figure) -> Figure:
        by = 1 / factor if f.unit.startswith("ms") else factor if f.unit.endswith("/s") else 1.0
        low, high = (None if b is None else b * by for b in (f.low, f.high))
        return Figure(f.value * by, f.unit, source, status, low, high)

    return msgspec.structs.replace(
        speed,
        measured=0,
        overhead=None if speed.overhead is None else scaled(speed.overhead),
        rate=None if speed.rate is None else scaled(speed.rate),
        throughput=None if speed.throughput is None else scaled(speed.throughput),
        figures={k: scaled(f) for k, f in speed.figures.items()},
        operators={k: scaled(f) for k, f in speed.operators.items()},
        models={k: ms / factor for k, ms in speed.models.items()},
    )
