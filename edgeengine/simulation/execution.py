"""How long things take in a simulation: the median, the p99, or a draw from the measured distribution."""

from __future__ import annotations

import random
from typing import Protocol

from edgeengine.errors import UserError
from edgeengine.spec import Latency
from edgeengine.spec.profile import P50


class ExecutionTimes(Protocol):
    def of(self, latency: Latency) -> int:
        """Nanoseconds for one occurrence."""
        ...


class Median:
    def of(self, latency: Latency) -> int:
        return latency.quantiles_ns[P50]  # not the property: this is asked several times per job


class Worst:
    """The p99: what the planner reckons with, not the largest value ever seen."""

    def of(self, latency: Latency) -> int:
        return latency.p99_ns


class Sampled:
    """Inverse transform sampling through the stored quantiles; equal seeds give equal runs."""

    def __init__(self, seed: int):
        self._random = random.Random(f"execution:{seed}").random

    def of(self, latency: Latency) -> int:
        if latency.n == 1:
            return latency.quantiles_ns[0]
        return latency.at(100 * self._random())


def make_execution_times(name: str, seed: int) -> ExecutionTimes:
    if name == "median":
        return Median()
    if name == "worst":
        return Worst()
    if name == "sampled":
        return Sampled(seed)
    raise UserError(f"unknown execution times {name!r}; choose median, worst or sampled")
