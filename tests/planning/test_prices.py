"""Fluid prices, what-ifs and exact schedules: small cases whose answers are known."""

from __future__ import annotations

import builtins
from typing import Any

import msgspec
import pytest

from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.planning.exact import best_schedule
from edgeengine.planning.objectives import on_time, xr_strict
from edgeengine.planning.prices import fluid, rate_hz
from edgeengine.planning.what_if import WhatIf, advise
from edgeengine.scheduling import make_policy
from edgeengine.scheduling.policies.price import Price
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Guidance
from edgeengine.workload import Workload
from edgeengine.workload.xr import RUN_MS
from tests.builders import MS, plan, processor, workload
from tests.workload.test_xr import golden

TWO = (
    {"name": "a", "period_ms": 10, "latency_ms": {"npu": 4, "cpu": 8}},
    {"name": "b", "period_ms": 10, "latency_ms": {"npu": 4, "cpu": 20}},
)


def test_fluid_load_balances_the_processors() -> None:
    """b on the npu alone (0.4); a splits: 0.4 + 0.4 x = 0.8 (1 - x), so x = 1/3."""
    tasks = workload(*TWO)
    found = fluid(tasks, plan(tasks))
    assert found.load == pytest.approx(0.4 + 0.4 / 3)
    assert found.left_out == ()
    # Dual prices: they sum to 1, and a job of `a` costs the same on both processors.
    assert sum(found.prices.values()) == pytest.approx(1)
    assert found.prices["npu"] * 4 == pytest.approx(found.prices["cpu"] * 8)


def test_parts_may_lie_on_different_processors_and_shared_cores_count_together() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "segments": 2, "latency_ms": {"npu": 8, "cpu": 8}})
    assert fluid(tasks, plan(tasks)).load == pytest.approx(0.4)
    both = plan(tasks, (processor("npu", "x"), processor("cpu", "x")))
    assert fluid(tasks, both).load == pytest.approx(0.8)


def test_what_cannot_be_in_time_is_left_out() -> None:
    tasks = workload(*TWO, {"name": "c", "period_ms": 10, "latency_ms": {"cpu": 11}})
    assert fluid(tasks, plan(tasks)).left_out == ("c",)
    assert fluid(tasks, plan(tasks), within_deadline=False).left_out == ()
    with pytest.raises(PlanInfeasible, match="no task of a known rate"):
        hopeless = workload({"name": "c", "period_ms": 10, "latency_ms": {"cpu": 11}})
        fluid(hopeless, plan(hopeless))


def test_rates_multiply_probabilities_down_the_chain() -> None:
    tasks = workload(
        {"name": "a", "rate_hz": 40},
        {"name": "b", "after": "a", "probability": 0.5},
        {"name": "c", "after": "b", "probability": 0.5},
        {"name": "d", "arrivals": {"poisson": 7}},
        {"name": "e"},
    )
    assert [rate_hz(tasks, t) for t in tasks.tasks] == pytest.approx([40, 20, 10, 7, 0])


def test_missing_scipy_is_said_and_planning_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = workload(*TWO)
    whole = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return whole(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"edgeengine\[solve\]"):
        fluid(tasks, plan(tasks))
    assert advise(tasks, plan(tasks), window_ns=50 * MS, most_trials=2).prices == {}


@pytest.mark.parametrize(("factor", "segments", "optimum"), [(1.3, 1, 93.83), (1.5, 1, 71.41), (1.5, 4, 75.89), (2.0, 1, 65.11)])
def test_what_if_finds_the_proved_optimum(factor: float, segments: int, optimum: float) -> None:
    tasks = golden(factor, segments)
    planned = plan(tasks)
    advised = advise(tasks, planned, objective=xr_strict, window_ns=RUN_MS * MS, most_trials=12)
    done = simulate(tasks, msgspec.structs.replace(planned, guidance=advised), Price(), Median(), stop_ns=RUN_MS * MS)
    assert xr_strict(tasks, done.jobs) == pytest.approx(optimum, abs=0.005)


def test_what_if_loses_to_no_member_of_its_portfolio_where_nothing_is_drawn() -> None:
    tasks = golden(1.4)
    planned = plan(tasks)
    what_if = WhatIf(tasks, planned, xr_strict, RUN_MS * MS)
    assert what_if.certain
    advised = advise(tasks, planned, objective=xr_strict, window_ns=RUN_MS * MS, most_trials=6)
    for name in ("least-slack", "heft", "edf", "sjf"):
        assert what_if.value(advised) >= what_if.value(Guidance(policy=name)) * (1 - 1e-3)


def test_advice_is_the_same_each_time_and_survives_the_file() -> None:
    tasks = workload(*TWO, {"name": "c", "after": "a", "probability": 0.5, "latency_ms": {"npu": 3}})
    first, second = (advise(tasks, plan(tasks), window_ns=100 * MS, most_trials=8) for _ in range(2))
    assert first == second
    assert msgspec.json.decode(msgspec.json.encode(first), type=Guidance) == first


def test_on_time_puts_a_class_before_all_below_it_and_one_victim_before_many() -> None:
    tasks = workload(
        {"name": "h", "period_ms": 10, "criticality": "high"},
        {"name": "x", "period_ms": 10},
        {"name": "y", "period_ms": 10},
    )

    def value(**missed: int) -> float:
        jobs = simulate(tasks, plan(tasks), make_policy("fifo"), Median(), stop_ns=100 * MS).jobs
        for job in jobs:
            if job.index < missed.get(job.task.name, 0):
                job.outcome = "late"
        return on_time(tasks, jobs)

    assert value(x=10, y=10) > value(h=1)
    assert value(x=6) > value(x=3, y=3)


# ---- exact schedules ----


def optimum(tasks: Workload, ms: float, **more: Any) -> Any:
    found = best_schedule(tasks, plan(tasks), stop_ns=round(ms * MS), seconds=20, **more)
    assert found.proved and found.value == found.bound
    return found


def test_exact_schedule_leaves_out_what_cannot_be() -> None:
    tasks = workload(
        {"name": "a", "period_ms": 10, "latency_ms": {"p": 6}}, {"name": "b", "period_ms": 10, "latency_ms": {"p": 5}}
    )
    assert optimum(tasks, 30).value == 3
    weighed = optimum(tasks, 30, weight=lambda t: {"a": 1, "b": 2}[t.name])
    assert weighed.value == 6 and {name for name, _ in weighed.met} == {"b"}


def test_exact_schedule_mixes_processors_and_waits_for_parents() -> None:
    tasks = workload(
        {"name": "a", "period_ms": 10, "segments": 2, "latency_ms": {"p": 8, "q": 8}},
        {"name": "b", "period_ms": 10, "segments": 2, "latency_ms": {"p": 8, "q": 8}},
        {"name": "c", "after": "a", "latency_ms": {"p": 2}},
    )
    assert optimum(tasks, 10).value == 3
    late = workload({"name": "a", "period_ms": 10, "latency_ms": {"p": 6}}, {"name": "c", "after": "a", "latency_ms": {"q": 5}})
    assert optimum(late, 10).met == {("a", 0)}


def test_no_policy_beats_the_exact_schedule() -> None:
    tasks = workload(
        {"name": "a", "period_ms": 10, "latency_ms": {"p": 5, "q": 9}}, {"name": "b", "period_ms": 15, "latency_ms": {"p": 7}},
        {"name": "c", "period_ms": 30, "segments": 2, "latency_ms": {"p": 6, "q": 14}},
    )  # fmt: skip
    best = optimum(tasks, 60).value
    for name in ("edf", "fifo", "price", "least-slack"):
        jobs = simulate(tasks, plan(tasks), make_policy(name), Median(), stop_ns=60 * MS).jobs
        assert sum(j.outcome == "met" for j in jobs) <= best
