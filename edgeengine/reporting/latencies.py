"""Percentiles of any number of latencies in bounded memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np

EXACT = 1 << 17  # so many values are kept as they are: 1 MiB
BITS = 12  # of a value that a bucket tells


class Latencies:
    """Nanoseconds, not negative. Percentiles are exact up to EXACT values; from there on they are of a histogram whose buckets
    keep the leading BITS bits of a value, as in HdrHistogram (Tene, hdrhistogram.org): at most 2^-BITS = 0.024 % off.
    """

    def __init__(self) -> None:
        self._values = array("q")
        self._buckets: Counter[int] = Counter()  # by the least value in it
        self._greatest = 0

    def add(self, ns: int) -> None:
        self._values.append(ns)
        if len(self._values) > EXACT:
            self._settle()

    def percentiles(self, percents: Iterable[int]) -> list[int | None]:
        """For each the value whose rank is nearest to (n - 1) p; 100 is the greatest, exactly. None without any value."""
        if self._buckets:
            self._settle()
            least = sorted(self._buckets)
            values = np.array([min(ns + (1 << max(ns.bit_length() - BITS, 0)) // 2, self._greatest) for ns in least])
            counts = np.array([self._buckets[v] for v in least])
        else:
            values, counts = np.sort(np.frombuffer(self._values, np.int64)), np.ones(len(self._values), np.int64)
        ranks = np.cumsum(counts)
        return [self._at(percent, values, ranks) for percent in percents]

    def _at(self, percent: int, values: np.ndarray, ranks: np.ndarray) -> int | None:
        if not len(values):
            return None
        if percent == 100:
            return self._greatest if self._buckets else int(values[-1])
        return int(values[np.searchsorted(ranks, round((int(ranks[-1]) - 1) * percent / 100), side="right")])

    def _settle(self) -> None:
        """Move the values into the histogram."""
        values = np.frombuffer(self._values, np.int64)
        self._greatest = max(self._greatest, int(values.max(initial=0)))
        dropped = np.maximum(np.frexp(values.astype(np.float64))[1] - BITS, 0)  # bits
        for least, count in zip(*np.unique(values >> dropped << dropped, return_counts=True), strict=True):
            self._buckets[int(least)] += int(count)
        self._values = array("q")
