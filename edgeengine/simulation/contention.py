"""Processors that share memory bandwidth slow each other while they run at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass
class _Work:
    left_ns: float  # of undisturbed running time
    rate: float  # share of the undisturbed speed
    since_ns: int


class Contention:
    """Keeps the work under way on each processor. `slowdown[a][b]` is the factor on a's latencies while b runs.

    Several neighbours add what each takes: with factors 1.3 and 1.2 a run is 1.5 times as long. Whenever a run begins or ends,
    the others go on at their new speed, so that a run is slowed just as long as it has company.
    """

    def __init__(self, slowdown: Mapping[str, Mapping[str, float]]):
        self._slowdown = slowdown
        self._running: dict[str, _Work] = {}

    def begin(self, processor: str, now: int, duration_ns: int) -> dict[str, int]:
        """A run of `duration_ns` if left alone. Returns when each running processor will now end, by name."""
        self._advance(now)
        self._running[processor] = _Work(duration_ns, 1.0, now)
        return self._ends(now)

    def end(self, processor: str, now: int) -> dict[str, int]:
        """As begin, for those that still run."""
        self._advance(now)
        del self._running[processor]
        return self._ends(now)

    def _advance(self, now: int) -> None:
        for work in self._running.values():
            work.left_ns -= (now - work.since_ns) * work.rate
            work.since_ns = now

    def _ends(self, now: int) -> dict[str, int]:
        ends = {}
        for name, work in self._running.items():
            factors = self._slowdown.get(name, {})
            work.rate = 1 / (1 + sum(factors.get(other, 1.0) - 1 for other in self._running if other != name))
            ends[name] = now + max(round(work.left_ns / work.rate), 0)
        return ends
