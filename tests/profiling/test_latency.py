"""Latency distributions: what is kept of the samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.spec import Latency
from edgeengine.spec.profile import QUANTILES

samples = st.lists(st.integers(0, 10**10), min_size=1, max_size=300)


@given(samples)
def test_every_stored_quantile_was_measured_and_they_ascend(values: list[int]) -> None:
    latency = Latency.of(values)
    assert latency.n == len(values)
    assert set(latency.quantiles_ns) <= set(values)
    assert list(latency.quantiles_ns) == sorted(latency.quantiles_ns)
    assert (latency.min_ns, latency.max_ns) == (min(values), max(values))


@given(samples, st.randoms())
def test_order_of_the_samples_does_not_matter(values: list[int], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Latency.of(shuffled) == Latency.of(values)


@given(samples, st.floats(0, 100), st.floats(0, 100))
def test_quantiles_between_the_stored_ones_are_monotone_and_in_range(values: list[int], a: float, b: float) -> None:
    latency = Latency.of(values)
    low, high = sorted((a, b))
    assert latency.min_ns <= latency.at(low) <= latency.at(high) <= latency.max_ns


def test_quantiles_are_the_nearest_ranks() -> None:
    latency = Latency.of(list(range(101)))
    assert latency.quantiles_ns == QUANTILES
    assert (latency.p50_ns, latency.p90_ns, latency.p99_ns) == (50, 90, 99)
    assert [latency.at(q) for q in QUANTILES] == list(QUANTILES)
    assert latency.at(97) == 97


def test_constant_is_the_same_everywhere() -> None:
    assert {Latency.constant(7).at(q) for q in (0, 3, 50, 99.9, 100)} == {7}


def test_no_samples_are_no_distribution() -> None:
    with pytest.raises(IndexError):
        Latency.of([])
