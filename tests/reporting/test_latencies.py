"""Percentiles in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.reporting import latencies
from edgeengine.reporting.latencies import BITS, Latencies

PERCENTS = (50, 90, 99, 100)
VALUES = st.lists(st.integers(0, 10**13), max_size=300)


def of(values: list[int]) -> list[int | None]:
    collected = Latencies()
    for value in values:
        collected.add(value)
    return collected.percentiles(PERCENTS)


def nearest(values: list[int]) -> list[int | None]:
    ordered = sorted(values)
    return [ordered[round((len(ordered) - 1) * p / 100)] if ordered else None for p in PERCENTS]


@given(VALUES)
def test_few_are_exact(values: list[int]) -> None:
    assert of(values) == nearest(values)


@given(VALUES, st.integers(1, 50))
def test_many_are_within_the_stated_error_and_the_greatest_is_exact(values: list[int], exact: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latencies, "EXACT", exact)
        found = of(values)
    true = nearest(values)
    assert found[-1] == true[-1]
    assert all(abs((a or 0) - (b or 0)) <= (b or 0) * 2.0**-BITS for a, b in zip(found, true, strict=True))


def test_asking_midway_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latencies, "EXACT", 10)
    asked = Latencies()
    values = [ns * 7_919 % 1_000_003 for ns in range(500)]
    for value in values:
        asked.add(value)
        asked.percentiles(PERCENTS)
    assert asked.percentiles(PERCENTS) == of(values)
