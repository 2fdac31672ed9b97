"""What a device profile says of effects, as plans carry them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from edgeengine.spec import Effects, Latency, Link, Processor, Throttle
from edgeengine.spec.device import DeviceProfile, Tail, Throttling
from edgeengine.spec.profile import QUANTILES


def effects_of(device: DeviceProfile) -> Effects:
    """Slowdowns, throttling, links and first runs, by the engine's processors. Those that share a resource never run together."""
    made = [(p, processor) for p in device.processor for processor in p.processors]
    slowdown: dict[str, dict[str, float]] = {}
    for p, mine in made:
        for q, other in made:
            factor = p.slowdown.get(q.name) or (device.slowdown if p.kind != q.kind else None)
            if factor is not None and not mine.conflicts(other):
                slowdown.setdefault(mine.name, {})[other.name] = factor.value
    return Effects(
        slowdown=slowdown,
        throttle={mine.name: Throttle(t.tau.value, t.sustained.value, t.slowest.value) for mine, t in _hot(device)},
        links=tuple(Link(k.one, k.other, round(k.latency.value * 1e6), k.bandwidth.value * 1e9) for k in device.link),
        first_run={mine.name: device.first_run.value for _, mine in made} if device.first_run is not None else {},
    )


def _hot(device: DeviceProfile) -> Iterator[tuple[Processor, Throttling]]:
    for p in device.processor:
        throttling = p.throttling or device.throttling
        if throttling is not None:
            yield from ((made, throttling) for made in p.processors)


def spread(median_ns: float, tail: Tail | None) -> Latency:
    """The distribution of latencies about a median: linear between the quantiles that the tail names, Pareto's above the p99."""
    if tail is None:
        return Latency.constant(round(median_ns))
    known = ((0, tail.min.value), (50, 1.0), (90, tail.p90.value), (99, tail.p99.value), (100, tail.max.value))
    quantiles = tuple(round(median_ns * _between(known, q)) for q in QUANTILES)
    return Latency(round(tail.runs.value), quantiles, _exponent(tail))


def _exponent(tail: Tail) -> float:
    """Of the Pareto tail that leaves the p99 and is expected to reach the maximum once in so many runs."""
    return math.log(tail.max.value / tail.p99.value) / math.log(tail.runs.value / 100)


def _between(known: tuple[tuple[int, float], ...], percent: float) -> float:
    for (a, low), (b, high) in pairwise(known):
        if percent <= b:
            return low + (high - low) * (percent - a) / (b - a)
    return known[-1][1]
