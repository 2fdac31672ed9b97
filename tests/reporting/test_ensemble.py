"""Rows over several seeds, and the interval of the miss rate."""

from __future__ import annotations

import random

import pytest

from edgeengine.reporting import ensemble_rows, miss_interval, task_rows
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Sampled, simulate
from tests.builders import plan, workload


def test_counts_add_up_and_percentiles_are_medians() -> None:
    tasks = workload({"name": "t", "arrivals": {"poisson": 300}, "deadline_ms": 3, "latency_ms": {"p": 2}})
    runs = []
    for seed in range(5):
        done = simulate(tasks, plan(tasks), make_policy("edf"), Sampled(seed), stop_ns=10**9, seed=seed)
        runs.append(task_rows(tasks, done.jobs, done.released))
    (row,) = ensemble_rows(runs)
    for key in ("released", "met", "late", "dropped", "failed", "rejected"):
        assert row[key] == sum(r[0][key] for r in runs)  # type: ignore[misc]
    assert row["p90_ms"] == sorted(r[0]["p90_ms"] for r in runs)[2]  # type: ignore[type-var]
    assert row["max_ms"] == max(r[0]["max_ms"] for r in runs)  # type: ignore[type-var]
    assert 0 < row["miss_low"] < row["miss_rate"] < row["miss_high"] < 1  # type: ignore[operator]


@pytest.mark.parametrize(("rate", "spread"), [(0.02, 0.0), (0.3, 0.0), (0.1, 0.08), (0.5, 0.3)])
def test_the_interval_holds_the_rate_as_often_as_it_says(rate: float, spread: float) -> None:
    """Runs whose own rates lie about `rate` by up to `spread`: jobs of a run hang together."""
    rng, held, trials = random.Random(7), 0, 400
    for _ in range(trials):
        own = [rate + rng.uniform(-spread, spread) for _ in range(20)]
        missed = [sum(rng.random() < p for _ in range(100)) for p in own]
        low, high = miss_interval(missed, [100] * 20)
        held += low <= rate <= high
    assert 0.91 <= held / trials <= 0.99


def test_no_miss_is_not_no_risk() -> None:
    low, high = miss_interval([0] * 5, [100] * 5)
    assert low == 0 and high == pytest.approx(3.84 / (500 + 3.84), rel=0.01)
    assert miss_interval([5, 5], [5, 5])[1] == 1.0
    assert miss_interval([0], [0]) == (0.0, 1.0)
