"""A device profile as tables: its processors, then every figure with its bounds and where it comes from."""

from __future__ import annotations

from collections import Counter

from edgeengine.cli.console import note, print_table
from edgeengine.spec.device import DeviceProfile, Figure, ProcessorProfile


def print_profile(profile: DeviceProfile) -> None:
    """What runs there and how fast; then the figures. Bounds hold 90 %."""
    print_table(
        f"{profile.name}: {profile.description} ({profile.chip})",
        ["processor", "kind", "holds", "what", "operators", "float", "int8"],
        [
            [_names(p), p.kind, " ".join(p.resources), p.description, p.runs or "all", _speed(p, "float"), _speed(p, "int8")]
            for p in profile.processor
        ],
    )
    figures = list(profile.figures())
    print_table(
        "figures",
        ["figure", "value", "from", "to", "unit", "status", "source"],
        [[where, _number(f.value), _number(f.low), _number(f.high), f.unit, f.status, f.source] for where, f in figures],
        numeric=["value", "from", "to"],
    )
    counts = Counter(f.status for _, f in figures)
    note(", ".join(f"{counts[s]} {s}" for s in ("seen", "derived", "fitted", "guessed") if counts[s]))
    for p in profile.processor:
        if not any(s.has_line for s in p.speed.values()):
            note(f"{p.name}: no latencies are known, so models are not planned on it")


def _names(p: ProcessorProfile) -> str:
    made = [m.name for m in p.processors]
    return made[0] if len(made) == 1 else f"{made[0]} to {made[-1]}"


def _speed(p: ProcessorProfile, precision: str) -> str | None:
    """Its line through the measurements: "0.34 ms + MACs / 3915 G/s"."""
    speed = p.speed.get(precision)
    if speed is None:
        return None
    if speed.throughput is not None:
        return f"throughput {_number(speed.throughput.value)} GMAC/s"
    return _line(speed.overhead, speed.rate)


def _line(overhead: Figure | None, rate: Figure | None) -> str | None:
    if overhead is None or rate is None:
        return None
    return f"{_number(overhead.value)} ms + MACs / {_number(rate.value)} G/s"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
