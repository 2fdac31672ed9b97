"""A power cap is kept at every instant by any policy; energies come from power where none is stated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.events import Finished, Started
from edgeengine.planning.power import capped
from edgeengine.reporting import task_rows
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Sampled, Simulation, simulate
from edgeengine.spec import Processor
from tests.builders import MS, plan, processor, workload


def processors(*watts: float | None) -> tuple[Processor, ...]:
    return tuple(processor(f"p{i}", power_w=w) for i, w in enumerate(watts))


def most_drawn_w(done: Simulation, watts: dict[str, float]) -> float:
    now = most = 0.0
    for line in done.log or []:
        if isinstance(line.event, Started):
            now += watts[line.event.processor]
        elif isinstance(line.event, Finished):
            now -= watts[line.event.processor]
        most = max(most, now)
    return most


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    watts=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    cap_w=st.integers(9, 20),
    policy=st.sampled_from(["edf", "price", "fifo", "heft"]),
)
def test_cap_is_kept_at_every_instant(watts: list[int], cap_w: int, policy: str) -> None:
    everywhere = {f"p{i}": 2.0 + i for i in range(len(watts))}
    tasks = workload(*({"name": f"t{i}", "period_ms": 5, "latency_ms": everywhere, "segments": 2} for i in range(4)))
    made = capped(plan(tasks, processors(*watts)), cap_w)
    done = simulate(tasks, made, make_policy(policy), Sampled(0), stop_ns=100 * MS, keep_log=True)
    by_name: dict[str, float] = {p.name: w for p, w in zip(made.processors, watts, strict=True)}
    assert most_drawn_w(done, by_name) <= cap_w
    assert any(j.outcome == "met" for j in done.jobs)


def test_cap_that_all_stay_under_changes_nothing() -> None:
    tasks = workload({"name": "t", "period_ms": 5, "latency_ms": {"p0": 1, "p1": 1}})
    made = plan(tasks, processors(2, 3))
    assert capped(made, 5.0) == made


def test_processor_over_the_cap_leaves_the_plan_or_the_plan_is_infeasible() -> None:
    tasks = workload({"name": "t", "period_ms": 5, "latency_ms": {"p0": 1, "p1": 1}})
    made = plan(tasks, processors(2, 8))
    assert {s.processor for s in capped(made, 5.0).tasks[0].steps} == {"p0"}
    with pytest.raises(PlanInfeasible, match="task 't': no processor that can run it draws at most 1 W"):
        capped(made, 1.0)


def test_cap_needs_power_figures() -> None:
    tasks = workload({"name": "t", "period_ms": 5, "latency_ms": {"p0": 1, "p1": 1}})
    with pytest.raises(UserError, match="what p1 draws is not known"):
        capped(plan(tasks, processors(2, None)), 5.0)


def test_energy_of_a_job_is_power_times_time() -> None:
    tasks = workload(
        {"name": "t", "period_ms": 10, "latency_ms": {"p0": 4}, "segments": 2}, {"name": "u", "latency_ms": {"p1": 1}}
    )
    done = simulate(tasks, plan(tasks, processors(2.5, None)), make_policy("edf"), Sampled(0), stop_ns=50 * MS)
    rows: dict[Any, Any] = {r["task"]: r for r in task_rows(tasks, done.jobs, done.released)}
    assert rows["t"]["energy_mj"] == 10.0 and rows["u"]["energy_mj"] is None
