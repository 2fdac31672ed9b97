"""Heat: a processor that is busy for minutes gets slower, and recovers when it rests.

A first-order model: the load (1 while running, else 0) is averaged exponentially, as the temperature of a body with one thermal
time constant follows its power; what exceeds the sustainable load slows the processor linearly. The constants are a device
profile's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from edgeengine.spec import Throttle


class Throttling:
    """Factors on latencies by processor; one without a Throttle stays at 1."""

    def __init__(self, throttle: Mapping[str, Throttle]):
        self._throttle = throttle
        self._load = dict.fromkeys(throttle, 0.0)
        self._since_ns = dict.fromkeys(throttle, 0)

    def factor(self, processor: str, now: int) -> float:
        """On the latency of a run that begins now, after a rest since the last one ended."""
        known = self._throttle.get(processor)
        if known is None:
            return 1.0
        self._average(processor, now, 0.0)
        above = max(self._load[processor] - known.sustained, 0.0)
        return 1 + (known.slowest - 1) * above / (1 - known.sustained) if above else 1.0

    def ran(self, processor: str, now: int) -> None:
        """A run that began when `factor` was asked ends now."""
        if processor in self._throttle:
            self._average(processor, now, 1.0)

    def _average(self, processor: str, now: int, load: float) -> None:
        kept = math.exp(-(now - self._since_ns[processor]) / (self._throttle[processor].tau_s * 1e9))
        self._load[processor] = self._load[processor] * kept + load * (1 - kept)
        self._since_ns[processor] = now
