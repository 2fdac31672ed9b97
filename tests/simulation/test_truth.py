"""Which device a run is on, where predictions leave that open."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from edgeengine.simulation import device_of
from edgeengine.spec import Latency, Plan, Processor, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA

BOUNDS = (0.5, 3.0)


def plan(*tasks: TaskPlan) -> Plan:
    processors = tuple(Processor(n, "cpu", "simulated", (n,)) for n in ("a", "b"))
    return Plan(SCHEMA, "device", "", processors, tasks)


def task(name: str, bundle: str, bounds: tuple[float, float] | None = BOUNDS, segments: int = 2) -> TaskPlan:
    steps = tuple(
        Step(f"s{i}", i, i + 1, p, Latency.constant(1_000_000), bounds=bounds) for i in range(segments) for p in ("a", "b")
    )
    return TaskPlan(name, bundle, segments, steps)


def factors(made: Plan) -> dict[tuple[str, str, str], float]:
    return {(t.task, s.subgraph, s.processor): s.latency.p50_ns / 1e6 for t in made.tasks for s in t.steps}


def test_what_is_known_is_not_drawn() -> None:
    known = plan(task("t", "x", bounds=None))
    assert all(device_of(known, times, 3) is known for times in ("sampled", "median", "worst"))


def test_median_is_as_predicted_and_worst_at_the_upper_bound() -> None:
    made = plan(task("t", "x"))
    assert set(factors(device_of(made, "median", 7)).values()) == {1.0}
    assert all(f == pytest.approx(3.0) for f in factors(device_of(made, "worst", 7)).values())
    assert all(s.bounds is None for t in device_of(made, "sampled", 7).tasks for s in t.steps)


def test_nine_of_ten_devices_lie_within_the_bounds_half_of_them_faster() -> None:
    made = plan(task("t", "x"))
    drawn = np.array([factors(device_of(made, "sampled", seed))["t", "s0", "a"] for seed in range(4000)])
    assert np.mean(drawn < BOUNDS[0]) == pytest.approx(0.05, abs=0.01)
    assert np.mean(drawn > BOUNDS[1]) == pytest.approx(0.05, abs=0.01)
    assert np.median(drawn) == pytest.approx(1.0, abs=0.05)


def test_parts_of_a_model_err_together_on_a_processor_and_models_apart() -> None:
    made = plan(task("t", "x"), task("again", "x"), task("other", "y"))
    for seed in range(20):
        f = factors(device_of(made, "sampled", seed))
        assert f["t", "s0", "a"] == f["t", "s1", "a"] == f["again", "s0", "a"] != f["other", "s0", "a"]
        assert f["t", "s0", "a"] != f["t", "s0", "b"]
    assert (
        factors(device_of(made, "sampled", 1)) == factors(device_of(made, "sampled", 1)) != factors(device_of(made, "sampled", 2))
    )


def test_each_step_moves_within_its_own_bounds() -> None:
    narrow = msgspec.structs.replace(task("t", "x").steps[0], bounds=(0.9, 1.1))
    wide = msgspec.structs.replace(task("t", "x").steps[2], bounds=(0.25, 4.0))
    made = plan(TaskPlan("t", "x", 2, (narrow, wide)))
    for seed in range(20):
        f = factors(device_of(made, "sampled", seed))
        z = math.log(f["t", "s1", "a"]) / math.log(4)
        expected = 1.1**z if z > 0 else 0.9**-z
        assert f["t", "s0", "a"] == pytest.approx(expected, rel=1e-5)
