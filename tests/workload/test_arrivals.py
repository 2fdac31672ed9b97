"""When jobs are released."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.workload import Releases, Task, load_workload, release_times
from tests.builders import MS, toml, workload


def task(**keys: Any) -> Task:
    return workload({"name": "t"} | keys).tasks[0]


def times(t: Task, count: int) -> list[int]:
    return list(islice(release_times(t), count))


def trace(tmp_path: Path, text: str) -> Task:
    (tmp_path / "trace.csv").write_text(text)
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "latency_ms": {"p": 1}, "arrivals": {"trace": "trace.csv"}}))
    return load_workload(tmp_path / "w.toml").tasks[0]


def test_period_counts_from_zero() -> None:
    assert times(task(period_ms=2.5), 4) == [0, 2_500_000, 5_000_000, 7_500_000]


@given(st.integers(1, 1000), st.integers(0, 5000))
def test_rate_does_not_drift(rate_hz: int, index: int) -> None:
    """Though its period is no whole number of nanoseconds."""
    found = next(islice(release_times(task(rate_hz=rate_hz)), index, None))
    assert abs(found - index * 1_000_000_000 / rate_hz) <= 0.5


def test_rate_of_30_is_on_the_second_after_an_hour() -> None:
    assert next(islice(release_times(task(rate_hz=30)), 30 * 3600, None)) == 3600 * 1_000_000_000


def test_poisson_is_the_same_again_and_has_its_rate() -> None:
    t = task(arrivals={"poisson": 100, "seed": 1})
    first = times(t, 4000)
    assert first == times(t, 4000)
    assert first != times(task(arrivals={"poisson": 100, "seed": 2}), 4000)
    assert all(a <= b for a, b in pairwise(first))
    assert first[-1] / 4000 == pytest.approx(10 * MS, rel=0.05)
    gaps = [b - a for a, b in pairwise(first)]
    mean = sum(gaps) / len(gaps)
    assert sum((g - mean) ** 2 for g in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.15)  # exponential: deviation = mean


def test_poisson_of_two_tasks_with_one_seed_differ() -> None:
    arrivals = {"poisson": 100, "seed": 1}
    a, b = workload({"name": "a", "arrivals": arrivals}, {"name": "b", "arrivals": arrivals}).tasks
    assert times(a, 5) != times(b, 5)


def test_task_without_pattern_releases_nothing() -> None:
    assert times(task(), 1) == []


def test_trace_is_read_without_header_and_comments_and_sorted(tmp_path: Path) -> None:
    t = trace(tmp_path, "release_ms\n# from the device\n\n3.5\n1,label\n 2 \n")
    assert times(t, 9) == [1 * MS, 2 * MS, 3_500_000]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("1\nsoon\n3\n", "line 2: 'soon'"),
        ("1\n2\n-3\n", "line 3: release time -3"),
        ("1\nnan\n", "line 2: 'nan'"),
        ("1\ninf\n", "line 2: 'inf'"),
    ],
)
def test_trace_with_a_bad_line_names_it(tmp_path: Path, text: str, word: str) -> None:
    t = trace(tmp_path, text)
    with pytest.raises(UserError) as e:
        times(t, 9)
    assert f"trace.csv, {word}" in str(e.value)


def popped(releases: Releases) -> list[tuple[int, str, int]]:
    found = []
    while releases.next_ns is not None:
        next_ns = releases.next_ns
        found += [(next_ns, name, index) for name, index in releases.pop()]
    return found


def test_releases_merge_by_time_and_then_the_order_of_the_tasks() -> None:
    tasks = workload({"name": "z", "period_ms": 4}, {"name": "a", "period_ms": 2}, {"name": "none"})
    assert popped(Releases(tasks, 5 * MS)) == [
        (0, "z", 0), (0, "a", 0), (2 * MS, "a", 1), (4 * MS, "z", 1), (4 * MS, "a", 2),
    ]  # fmt: skip


def test_releases_stop_before_the_end() -> None:
    tasks = workload({"name": "t", "period_ms": 5})
    assert [r[0] for r in popped(Releases(tasks, 10 * MS))] == [0, 5 * MS]
    assert [r[0] for r in popped(Releases(tasks, 10 * MS + 1))] == [0, 5 * MS, 10 * MS]


def test_releases_end_with_their_traces(tmp_path: Path) -> None:
    trace(tmp_path, "1\n2\n")
    assert len(popped(Releases(load_workload(tmp_path / "w.toml"), None))) == 2


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(1, 100))
def test_releases_are_those_of_each_task_before_the_end(periods: list[int], stop_ms: int) -> None:
    tasks = workload(*({"name": f"t{i}", "period_ms": p} for i, p in enumerate(periods)))
    found = popped(Releases(tasks, stop_ms * MS))
    assert found == sorted(found, key=lambda r: (r[0], int(r[1][1:])))
    for i, p in enumerate(periods):
        assert [(r, k) for r, name, k in found if name == f"t{i}"] == [(k * p * MS, k) for k in range(-(-stop_ms // p))]


@given(st.floats(0.01, 20), st.floats(0, 1), st.integers(0, 9))
def test_jitter_delays_each_release_by_up_to_it(period_ms: float, share: float, seed: int) -> None:
    t = task(period_ms=period_ms, jitter_ms=share * period_ms)
    found, nominal = list(islice(release_times(t, seed), 50)), times(task(period_ms=period_ms), 50)
    assert found == sorted(found) == list(islice(release_times(t, seed), 50))
    assert all(0 <= f - n <= round(share * period_ms * MS) for f, n in zip(found, nominal, strict=True))


BURSTY = {"bursty": [{"rate_hz": 200, "mean_ms": 100}, {"rate_hz": 2, "mean_ms": 900}]}


def test_bursts_have_the_mean_rate_of_their_phases_and_cluster() -> None:
    """200 Hz a tenth of the time, 2 Hz the rest: 21.8 Hz; a Poisson stream of that rate has a squared variation of 1."""
    found = times(task(arrivals=BURSTY), 40_000)
    gaps = [b - a for a, b in pairwise(found)]
    mean = sum(gaps) / len(gaps)
    assert 1e9 / mean == pytest.approx(21.8, rel=0.05)
    assert sum((g - mean) ** 2 for g in gaps) / len(gaps) / mean**2 > 5
    assert min(gaps) >= 0


@pytest.mark.parametrize("keys", [{"arrivals": BURSTY}, {"arrivals": {"poisson": 50}}, {"period_ms": 5, "jitter_ms": 5}])
def test_a_runs_seed_draws_other_releases(keys: dict[str, Any]) -> None:
    t = task(**keys)
    runs = [tuple(islice(release_times(t, seed), 30)) for seed in (0, 1, 2, 0)]
    assert len(set(runs)) == 3 and runs[0] == runs[3]


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"period_ms": 5, "jitter_ms": 6}, "jitter_ms"),
        ({"period_ms": 5, "jitter_ms": -1}, "jitter_ms"),
        ({"jitter_ms": 1}, "jitter_ms"),
        ({"arrivals": {"poisson": 5}, "jitter_ms": 1}, "jitter_ms"),
        ({"arrivals": {"bursty": []}}, "positive rate_hz"),
        ({"arrivals": {"bursty": [{"rate_hz": 0, "mean_ms": 5}]}}, "positive rate_hz"),
        ({"arrivals": {"bursty": [{"rate_hz": 5, "mean_ms": 0}]}}, "mean_ms"),
        ({"arrivals": {"bursty": [{"rate_hz": -5, "mean_ms": 1}, {"rate_hz": 5, "mean_ms": 1}]}}, "rate_hz"),
        ({"arrivals": {"bursty": [{"rate_hz": 5, "mean_ms": 1}], "poisson": 3}}, "give one of"),
    ],
)
def test_irregular_patterns_that_cannot_be(keys: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        task(**keys)
