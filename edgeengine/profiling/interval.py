"""How far a median can be trusted: its distribution-free confidence interval, from order statistics.

Whatever the distribution, the number of n independent samples below the median is binomial(n, 1/2); so the interval between the
j-th smallest and the j-th largest sample covers the median with the probability that this count lies in [j, n - j] (H. A. David,
H. N. Nagaraja, Order Statistics, 3rd ed., Wiley 2003, section 7.1). Latencies are skewed and have outliers, which a normal
interval of the mean takes badly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

CONFIDENCE = 0.95
LEAST = 6  # samples: below, even the range of all of them covers the median with less than 95 %
_EXACT = 1000  # samples up to which the binomial sum is computed (2^-n is a float until 1074); above, the normal limit


def rank(n: int) -> int | None:
    """The greatest j (from 1) such that [j-th smallest, j-th largest] of n samples covers the median with CONFIDENCE.

    None below LEAST samples.
    """
    if n < LEAST:
        return None
    if n > _EXACT:
        return math.floor((n - 1.96 * math.sqrt(n)) / 2)
    outside, term, j = 0.0, 0.5**n, 0  # term = C(n, j) / 2^n
    while 2 * (outside + term) <= 1 - CONFIDENCE:
        outside += term
        term *= (n - j) / (j + 1)
        j += 1
    return j


def half_width(samples: Sequence[int]) -> float | None:
    """Half the confidence interval of the median, as a share of it; None below LEAST samples or for a median of 0."""
    j = rank(len(samples))
    ordered = sorted(samples)
    median = ordered[len(ordered) // 2] if ordered else 0
    return None if j is None or not median else (ordered[-j] - ordered[j - 1]) / 2 / median
