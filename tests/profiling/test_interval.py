"""The confidence interval of a median."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.profiling.interval import LEAST, half_width, rank


@pytest.mark.parametrize(("n", "j"), [(6, 1), (8, 1), (9, 2), (20, 6), (30, 10), (50, 18), (70, 27)])
def test_ranks_are_those_of_published_tables(n: int, j: int) -> None:
    """The sign test's table of confidence intervals for a median at 95 %, as in Le Boudec, Performance Evaluation, appendix A."""
    assert rank(n) == j


@given(st.integers(LEAST, 1000))
def test_rank_is_the_greatest_that_covers(n: int) -> None:
    def outside(j: int) -> float:
        return 2 * sum(math.comb(n, k) for k in range(j)) / 2**n

    j = rank(n)
    assert j is not None and outside(j) <= 0.05 < outside(j + 1)


def test_exact_and_limiting_rank_agree_where_they_meet() -> None:
    exact, limit = rank(1000), rank(1001)
    assert exact is not None and limit is not None and abs(exact - limit) <= 1


@pytest.mark.parametrize("n", [10, 41, 400])
def test_interval_covers_the_median_of_a_skewed_distribution(n: int) -> None:
    rng, j = np.random.default_rng(n), rank(n)
    assert j is not None
    drawn = np.sort(rng.lognormal(0.0, 1.5, (4000, n)), axis=1)  # its median is 1
    covered = np.mean((drawn[:, j - 1] <= 1) & (drawn[:, n - j] >= 1))
    assert 0.94 < covered < 0.99


def test_too_few_samples_have_no_interval() -> None:
    assert half_width([1] * (LEAST - 1)) is None
    assert half_width([0] * 20) is None
    assert half_width([]) is None


def test_half_width_is_a_share_of_the_median_and_shrugs_at_outliers() -> None:
    assert half_width([100] * 20) == 0
    assert half_width([*range(90, 110), 10**9]) == pytest.approx(4.5 / 100, abs=0.01)
