"""From a workload to a measured plan, with hardly any measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices import discover
from edgeengine.engine import Engine
from edgeengine.engine.prepare import Budget, prepare
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.profiling import BACK_TO_BACK, ProfileStore
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Sampled, simulate
from edgeengine.workload import Workload, parse_workload
from tests.builders import real_plan, toml

QUICK = Budget(bundle_s=0.05, chains_s=0.05, rehearsal_s=0.4, overheads_s=0.3)


@pytest.fixture
def tasks(bundles: dict[str, Bundle]) -> Workload:
    def model(name: str) -> str:
        return str(bundles[name].path)

    return parse_workload(
        toml(
            {"name": "scale", "model": model("scale"), "period_ms": 20, "criticality": "high"},
            {"name": "frames", "model": model("frames"), "period_ms": 25},
            {
                "name": "total",
                "model": model("total"),
                "after": "frames",
                "feed": {"w": "frames.f"},
                "window": {"frames": 6, "hop": 2},
            },
            {
                "name": "accumulate",
                "model": model("accumulate"),
                "rate_hz": 30,
                "carry": {"new": "state"},
                "criticality": "background",
            },
        )
    )


def test_plan_made_here_runs_and_is_simulated(tasks: Workload, bundles: dict[str, Bundle], tmp_path: Path) -> None:
    store = ProfileStore(tmp_path / "profile.sqlite")
    given = {t.name: bundles[t.name] for t in tasks.tasks}
    prepared = prepare(tasks, given, store, processors=discover(), budget=QUICK)
    plan = prepared.plan
    assert [t.task for t in plan.tasks] == [t.name for t in tasks.tasks]
    for t in plan.tasks:
        assert t.bundle == given[t.task].hash
        assert t.measured_ns is not None and t.whole_ns is not None and t.measured_ns <= t.whole_ns
        reached = {0}
        for step in sorted(t.steps, key=lambda s: s.start):
            assert step.start in reached and step.latency.p50_ns > 0
            reached.add(step.stop)
        assert t.segments in reached
    assert {"timer", "handoff", "next"} <= plan.overheads.keys()
    assert {r.condition for r in prepared.rows} >= {BACK_TO_BACK, "period:20", "period:25"}
    costs = {r.name: r.latency for r in prepared.machine}
    assert {n: v for n, v in costs.items() if not n.startswith("around:")} == plan.overheads
    assert {n: v for n, v in costs.items() if n.startswith("around:")} == {
        f"around:{t.task}": t.around for t in plan.tasks if t.around is not None
    }
    assert "around:scale" in costs
    assert sorted(store.machine_rows(plan.device), key=repr) == sorted(prepared.machine, key=repr)
    stored = {(r.bundle, r.subgraph, r.processor) for r in store.rows(plan.device)}
    assert stored >= {(t.bundle, s.subgraph, s.processor) for t in plan.tasks for s in t.steps}
    with Engine(tasks, plan, seconds=0.2, keep_jobs=True) as engine:
        engine.wait()
    live = {(j.task.name, j.index) for j in engine.jobs}
    done = simulate(tasks, plan, make_policy("edf"), Sampled(0), stop_ns=200_000_000)
    assert {(j.task.name, j.index) for j in done.jobs} == live
    assert not [j for j in engine.jobs if j.outcome == "failed"]


def test_rows_measured_before_are_used_again(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    one = parse_workload(toml({"name": "scale", "model": str(bundles["scale"].path), "period_ms": 20}))
    store = ProfileStore(tmp_path / "profile.sqlite")
    first, second = (prepare(one, bundles_of(one, bundles), store, processors=discover(), budget=QUICK) for _ in range(2))
    back_to_back = [[r for r in p.rows if r.condition == BACK_TO_BACK] for p in (first, second)]
    assert sorted(back_to_back[0], key=repr) == sorted(back_to_back[1], key=repr) != []


@pytest.mark.parametrize("change", [{"versions": {"onnxruntime": "0.1", "numpy": "0.1"}}, {"shapes": "x=9x9"}])
def test_rows_of_other_versions_or_shapes_are_not_used_again(
    bundles: dict[str, Bundle], tmp_path: Path, change: dict[str, Any]
) -> None:
    one = parse_workload(toml({"name": "scale", "model": str(bundles["scale"].path), "period_ms": 20}))
    stores = [ProfileStore(tmp_path / f"{i}.sqlite") for i in range(2)]
    first = prepare(one, bundles_of(one, bundles), stores[0], processors=discover(), budget=QUICK)
    other = [msgspec.structs.replace(r, **change, measured_at="then") for r in first.rows if r.condition == BACK_TO_BACK]
    stores[1].put(other)
    second = prepare(one, bundles_of(one, bundles), stores[1], processors=discover(), budget=QUICK)
    assert not [r for r in second.rows if r.measured_at == "then"]


def test_engine_takes_of_a_plan_what_its_tasks_need(bundles: dict[str, Bundle]) -> None:
    one = parse_workload(toml({"name": "scale", "model": str(bundles["scale"].path), "period_ms": 20, "deadline_ms": 5000}))
    planned = real_plan(one, bundles)
    foreign = msgspec.structs.replace(planned.tasks[0], task="foreign")
    both = msgspec.structs.replace(planned, tasks=(*planned.tasks, foreign))
    with Engine(one, both, seconds=0.05, keep_jobs=True, bundles={"scale": bundles["scale"]}) as engine:
        engine.wait()
    assert {j.outcome for j in engine.jobs} == {"met"}


def bundles_of(tasks: Workload, bundles: dict[str, Bundle]) -> dict[str, Bundle | None]:
    return {t.name: bundles[t.name] if t.model is not None else None for t in tasks.tasks}


def test_workload_of_models_and_latencies_is_refused(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    mixed = parse_workload(
        toml(
            {"name": "scale", "model": str(bundles["scale"].path), "period_ms": 20},
            {"name": "stated", "period_ms": 20, "latency_ms": {"cpu0": 1}},
        )
    )
    with pytest.raises(UserError, match="'stated'"):
        prepare(mixed, bundles_of(mixed, bundles), ProfileStore(tmp_path / "p.sqlite"), processors=discover(), budget=QUICK)


def test_machine_without_a_usable_processor_is_infeasible(tasks: Workload, bundles: dict[str, Bundle], tmp_path: Path) -> None:
    with pytest.raises(PlanInfeasible, match="no usable processor"):
        prepare(tasks, bundles_of(tasks, bundles), ProfileStore(tmp_path / "p.sqlite"), processors=[], budget=QUICK)
