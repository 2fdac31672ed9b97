"""A new device from a few measurements on it and a described one that is like it.

Each anchor says how many times as fast its processor is as the like's: by what the same model takes there, where that was
measured, else by what is expected of it. The speed is scaled by the median of these factors; the anchors' spread about it widens
its bounds. Known models are scaled by a factor that may change with their latency (a line on logarithms, drawn towards the mean):
a faster processor is often not faster at small models. What was not measured stays as it is on the like, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from edgeengine.devices.modes import faster
from edgeengine.errors import UserError
from edgeengine.planning.estimates import from_macs
from edgeengine.profiling.anchors import KINDS, Anchor
from edgeengine.spec.device import DeviceProfile, Figure, ProcessorProfile, Speed

RIDGE = 1.0  # in squared logarithms of latency: as if so much had been seen at no slope at all


class Comparison(NamedTuple):
    """What the like's processor takes for an anchor's model, and how many times as fast the new one is."""

    like_ms: float
    factor: float


def calibrated(anchors: Sequence[Anchor], like: DeviceProfile, description: str, source: str) -> DeviceProfile:
    """The profile of the new device. `source` is what its new figures cite.

    Raises UserError for an anchor on a processor that `like` does not have, or at a precision that it has no speed for.
    """
    factors: dict[tuple[str, str], list[Comparison]] = {}
    for anchor in anchors:
        for p in _meant(anchor, like):
            factors.setdefault((p.name, anchor.precision), []).append(_compared(anchor, p.speed[anchor.precision]))
    processors = tuple(_processor(p, factors, like.name, source) for p in like.processor)
    return msgspec.structs.replace(like, description=description, processor=processors, mode=())


def _compared(anchor: Anchor, speed: Speed) -> Comparison:
    known_ms = speed.models.get(anchor.model)
    if known_ms is None:
        known_ms = from_macs(anchor.macs, speed).median_ns / 1e6
    return Comparison(known_ms, known_ms / anchor.latency_ms)


def _meant(anchor: Anchor, like: DeviceProfile) -> list[ProcessorProfile]:
    """The processors an anchor speaks of: those of its name, else of its kind and as many threads, else of its kind, that have a
    line at its precision.
    """
    named = [p for p in like.processor if anchor.processor in (p.name, *(m.name for m in p.processors))]
    kind = next((k for k in KINDS if anchor.processor.startswith(k)), None)
    of_kind = [p for p in like.processor if p.kind == kind]
    candidates = named or [p for p in of_kind if p.threads == anchor.threads] or of_kind
    found = [p for p in candidates if _line(p.speed.get(anchor.precision))]
    if not candidates:
        known = ", ".join(p.name for p in like.processor)
        raise UserError(f"{anchor.where}: {like.name} has no processor {anchor.processor!r}; it has {known}")
    if not found:
        raise UserError(f"{anchor.where}: {like.name} has no {anchor.precision} speed on {anchor.processor}")
    return found


def _line(speed: Speed | None) -> bool:
    return speed is not None and speed.has_line


def _processor(
    processor: ProcessorProfile, factors: dict[tuple[str, str], list[Comparison]], like: str, source: str
) -> ProcessorProfile:
    speeds = {}
    for precision, speed in processor.speed.items():
        own = factors.get((processor.name, precision))
        if own is None:
            speeds[precision] = faster(speed, 1.0, f"as {like}, not calibrated", "guessed")
        else:
            found = [c.factor for c in own]
            scaled = _widened(faster(speed, median(found), f"{source}, like {like}", "fitted"), found)
            speeds[precision] = msgspec.structs.replace(scaled, models=_models(speed.models, own))
    return msgspec.structs.replace(processor, speed=speeds)


def _models(models: Mapping[str, float], own: Sequence[Comparison]) -> dict[str, float]:
    """The like's models at the factor that a line on logarithms gives for their latency."""
    x, y = [math.log(c.like_ms) for c in own], [math.log(c.factor) for c in own]
    mean_x, mean_y = fmean(x), fmean(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / (sum((a - mean_x) ** 2 for a in x) + RIDGE)
    return {k: ms / math.exp(mean_y + slope * (math.log(ms) - mean_x)) for k, ms in models.items()}


def _widened(speed: Speed, factors: Sequence[float]) -> Speed:
    """The speed with bounds that hold what every anchor alone would make of it."""
    least, most = min(factors) / median(factors), max(factors) / median(factors)

    def widened(f: Figure | None) -> Figure | None:
        if f is None:
            return None
        slow, fast = (1 / most, 1 / least) if f.unit == "ms" else (least, most)
        return msgspec.structs.replace(f, low=_least(f.low, f.value * slow), high=_most(f.high, f.value * fast))

    return msgspec.structs.replace(speed, measured=len(factors), overhead=widened(speed.overhead), rate=widened(speed.rate))


def _least(*values: float | None) -> float:
    return min(_given(values))


def _most(*values: float | None) -> float:
    return max(_given(values))


def _given(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]
