"""Estimates follow what a processor does, and stay where nothing drifts."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from edgeengine.events import EstimateChanged, Finished
from edgeengine.scheduling import make_policy
from edgeengine.scheduling.drift import CLEAR, FORGET_NS, Drift
from edgeengine.simulation import Sampled, Simulation, simulate
from edgeengine.spec import Effects, Latency, Plan, Throttle
from edgeengine.workload import Workload
from tests.builders import MS, plan, workload
from tests.scheduling.driver import replay

SECOND_NS = 1_000 * MS
ONE = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 2, "q": 2}})


def observe(drift: Drift, ratios: list[float], start: int = 0, processor: str = "p") -> list[EstimateChanged]:
    found = []
    for i, ratio in enumerate(ratios):
        found += drift.observe(Finished(start + 10 * MS * i, "t", i, "s0_1", processor, "done", round(2 * MS * ratio)))
    return found


def test_factor_is_learnt_from_clearly_slower_runs_and_unlearnt() -> None:
    drift = Drift(plan(ONE))
    assert observe(drift, [1.5] * (CLEAR - 1)) == []
    (change,) = observe(drift, [1.5])
    assert (change.processor, change.factor) == ("p", 1.5)
    assert observe(drift, [1.5, 1.53, 1.46] * 20) == []
    assert [c.factor for c in observe(drift, [1.0] * CLEAR)] == [1.0]


def test_a_few_slow_runs_are_no_drift() -> None:
    assert observe(Drift(plan(ONE)), [5.0, 1.0, 1.0, 5.0] * 100) == []


def test_latencies_that_only_spread_are_no_drift() -> None:
    rng = random.Random(3)
    assert observe(Drift(plan(ONE)), [rng.lognormvariate(0, 0.1) for _ in range(20_000)]) == []


def test_slow_processor_that_nobody_uses_is_tried_again() -> None:
    drift = Drift(plan(ONE))
    observe(drift, [3.0] * CLEAR)
    found = observe(drift, [1.0] * 3000, start=SECOND_NS, processor="q")
    assert [c.factor for c in found[:3]] == [2.0, 1.5, 1.25] and found[-1].factor == 1.0
    assert found[1].at_ns - found[0].at_ns > FORGET_NS


def throttled(sustained: float) -> tuple[Workload, Plan]:
    """Two accelerators; the faster one gets hot and then is the slower. The high task fits on either, if it knows."""
    tasks = workload(
        {"name": "high", "criticality": "high", "period_ms": 20, "deadline_ms": 14, "latency_ms": {"hot": 6, "cool": 9}},
        {"name": "other", "period_ms": 20, "deadline_ms": 40, "latency_ms": {"hot": 5}},
    )
    made = plan(tasks)
    return tasks, msgspec.structs.replace(made, effects=Effects(throttle={"hot": Throttle(0.5, sustained, 4.0)}))


def run(tasks: Workload, planned: Plan, policy: str, seed: int = 0, **options: Any) -> Simulation:
    return simulate(tasks, planned, make_policy(policy), Sampled(seed), stop_ns=10 * SECOND_NS, keep_log=True, **options)


def missed(done: Simulation, task: str) -> int:
    return sum(j.outcome != "met" for j in done.jobs if j.task.name == task)


@pytest.mark.parametrize("policy", ["edf", "price"])
def test_throttling_costs_fewer_high_deadlines_where_estimates_follow(policy: str) -> None:
    tasks, planned = throttled(0.2)
    blind, seeing = (run(tasks, planned, policy, track_drift=on) for on in (False, True))
    assert missed(blind, "high") > 10
    assert missed(seeing, "high") <= missed(blind, "high") / 10
    log = seeing.log or []
    assert any(isinstance(line.event, EstimateChanged) and line.event.factor > 2 for line in log)
    assert replay(tasks, planned, make_policy(policy), log) == [line.actions for line in log]


@pytest.mark.parametrize("policy", ["edf", "price"])
def test_nothing_changes_where_nothing_drifts(policy: str) -> None:
    tasks, planned = throttled(1.0)
    rng = random.Random(1)
    spread = Latency.of([round(1e6 * rng.lognormvariate(0, 0.1)) for _ in range(500)])
    noisy = tuple(
        msgspec.structs.replace(
            t, steps=tuple(msgspec.structs.replace(s, latency=spread.scaled(s.latency.p50_ns / spread.p50_ns)) for s in t.steps)
        )
        for t in planned.tasks
    )
    planned = msgspec.structs.replace(planned, tasks=noisy, effects=None)
    blind, seeing = (run(tasks, planned, policy, track_drift=on) for on in (False, True))
    assert seeing.log == blind.log and len(blind.jobs) == 1000
