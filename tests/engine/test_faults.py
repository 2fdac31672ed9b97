"""What goes wrong in sources, glue, windows, plans and callers ends the job at fault, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine import Engine
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.workload import parse_workload
from tests.builders import real_plan, toml
from tests.engine.test_engine import SOON, Gate, Provided, X, engine

Bundles = dict[str, Bundle]


def test_ragged_input_is_the_callers_error(bundles: Bundles) -> None:
    with engine(bundles, {"name": "scale"}) as e, pytest.raises(UserError, match="'x' is not an array"):
        e.submit("scale", {"x": [[1.0, 2.0], [3.0]]})  # type: ignore[dict-item]


def test_window_that_is_not_full_yet_fails_the_child_not_the_parent(bundles: Bundles) -> None:
    child = {"name": "total", "after": "frames", "feed": {"w": "frames.f"}, "window": {"frames": 6, "hop": 2}}
    with engine(bundles, {"name": "frames"}, child) as e:
        stream = e.results("total")
        parents = [e.submit("frames", {"x": np.ones((1, 2, 4), np.float32)}).result(SOON) for _ in range(4)]
        children = [stream.get(timeout=SOON) for _ in range(4)]
    assert [r.outcome for r in parents] == ["met"] * 4
    assert [r.outcome for r in children] == ["failed", "failed", "met", "met"]
    assert "4 of 6 frames" in children[1].cause


def test_glue_that_raises_fails_the_child_not_the_parent(
    bundles: Bundles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "badglue.py").write_text("def f(arrays):\n    raise RuntimeError('no glue today')\n")
    monkeypatch.syspath_prepend(tmp_path)
    child = {"name": "total", "after": "frames", "feed": {"w": "frames.f"}, "glue": "badglue:f"}
    with engine(bundles, {"name": "frames", "period_ms": 10}, child, seconds=0.05, keep_jobs=True) as e:
        e.wait()
    assert {(j.task.name, j.outcome) for j in e.jobs} == {("frames", "met"), ("total", "failed")}
    assert {j.cause for j in e.jobs if j.task.name == "total"} == {"RuntimeError: no glue today"}


def test_cancelling_a_running_job_leaves_the_carried_state(bundles: Bundles) -> None:
    gate, x = Gate(), np.ones((1, 2), np.float32)
    providers = {CpuProvider.name: Provided(gate)}
    with engine(bundles, {"name": "accumulate", "carry": {"new": "state"}}, providers=providers) as e:
        running = e.submit("accumulate", {"x": x})
        gate.await_one()
        running.cancel()
        gate.open()
        assert running.result(SOON).outcome == "dropped"
        after = e.submit("accumulate", {"x": x}).result(SOON)
    np.testing.assert_array_equal(after.outputs["y"], x)


def test_callback_added_after_the_engine_closed_runs_at_once(bundles: Bundles) -> None:
    called = threading.Event()
    with engine(bundles, {"name": "scale"}) as e:
        future = e.submit("scale", {"x": X})
        future.result(SOON)
    future.add_done_callback(lambda _: called.set())
    assert called.is_set()


def test_plan_for_cores_that_are_not_ours_is_refused(bundles: Bundles) -> None:
    made = parse_workload(toml({"name": "scale", "model": str(bundles["scale"].path), "deadline_ms": 60000}))
    plan = real_plan(made, bundles)
    elsewhere = tuple(msgspec.structs.replace(p, host_core=4000) for p in plan.processors)
    with (
        pytest.raises(PlanInfeasible, match="needs core 4000"),
        Engine(made, msgspec.structs.replace(plan, processors=elsewhere)),
    ):
        pass
