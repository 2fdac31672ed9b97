"""`edgeengine profile` and `edgeengine profiles`, mostly on a fake GPU in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices import device_id
from edgeengine.engine.rehearse import Rehearsal
from edgeengine.graph import loads
from edgeengine.profiling import ProfileStore
from edgeengine.profiling.isolated import Isolated
from edgeengine.profiling.series import Series
from edgeengine.spec import Latency, Plan
from edgeengine.testing import FakeGpu, Faults, VirtualClock
from edgeengine.workload import Workload


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeGpu]:
    """Makes this machine one with a fake GPU, and nothing else; its sessions cannot be made in another process."""

    def install(faults: Faults | None = None) -> FakeGpu:
        made = FakeGpu(VirtualClock(), compute_ns=2_000_000, faults=faults)
        monkeypatch.setattr("edgeengine.cli.resolve.discover", lambda *_: made.discover((0,)))
        monkeypatch.setattr("edgeengine.devices.providers.load_providers", lambda **_: {made.name: made})
        monkeypatch.setattr("edgeengine.engine.prepare.load_providers", lambda **_: {made.name: made})
        for module in ("back_to_back", "machine"):
            monkeypatch.setattr(f"edgeengine.profiling.{module}.MonotonicClock", lambda: made.clock)
        monkeypatch.setattr("edgeengine.profiling.back_to_back.isolated", lambda found, _: [Isolated(1 << 20)] * len(found))
        monkeypatch.setattr(loads, "MATRICES", ((64, 64),))
        monkeypatch.setattr(loads, "SIDE", 64)
        monkeypatch.setattr(loads, "COPIES", (4096,))
        return made

    return install


@pytest.fixture
def model(bundles: dict[str, Bundle]) -> Path:
    return bundles["scale"].path


def test_table_says_what_each_part_takes_and_what_bounds_it(cli: Any, gpu: Any, model: Path) -> None:
    gpu()
    done = cli("profile", model)
    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    parts = {line[0]: line for line in lines if line and "_" in line[0]}
    assert {"s0_1", "s0_2", "s0_3"} <= parts.keys()
    assert all("2.02 / 2.02" in " ".join(line) and line[-1] == "ok" and "launch" in line for line in parts.values())


def test_document_holds_rows_machine_and_bounds(cli: Any, gpu: Any, model: Path, tmp_path: Path) -> None:
    gpu()
    done = cli("profile", model, "--json", "-o", "p.json")
    document = json.loads(done.out)
    assert {(r["verdict"], r["ended"], r["processor"]) for r in document["rows"]} == {("ok", "width", "gpu")}
    assert {"launch:gpu", "compute:gpu", "transfer:host:gpu:4096"} <= {m["name"] for m in document["machine"]}
    assert {b["bound"] for b in document["bounds"]} == {"launch"}
    assert json.loads((tmp_path / "p.json").read_bytes())["rows"] == document["rows"]


def test_fallback_is_shown(cli: Any, gpu: Any, model: Path) -> None:
    gpu(Faults(unsupported=frozenset({"Relu"})))
    done = cli("profile", model)
    assert done.code == 0
    assert "warning: s0_3 on gpu: 1 Relu fell back to CPUExecutionProvider: the fake GPU lacks it" in done.err.splitlines()
    assert any(line.split()[:1] == ["s0_3"] and "25.0%" in line for line in done.out.splitlines())


def test_strict_holds_for_what_was_measured_before(cli: Any, gpu: Any, model: Path) -> None:
    gpu(Faults(unsupported=frozenset({"Relu"})))
    assert cli("profile", model).code == 0
    done = cli("profile", model, "--strict")
    assert done.code == 4 and "known to within" in done.err
    assert "s0_2 on gpu: strict, and 1 of 3 nodes fell back" in done.err.splitlines()[-1]


def test_denormal_weights_are_told_once(cli: Any, gpu: Any, tmp_path: Path) -> None:
    gpu()
    nodes = [onnx.helper.make_node("Add", ["x", "w"], ["y"])]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    weights = [onnx.numpy_helper.from_array(np.full(4, 1e-40, np.float32), "w")]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    done = cli("profile", "m.onnx", "--json")
    assert done.code == 0, done.err
    assert {r["denormal_weights"] for r in json.loads(done.out)["rows"]} == {4}
    assert [line for line in done.err.splitlines() if "denormal" in line] == [
        "warning: s0_1: 4 denormal weights, which slow CPUs down; make them zero"
    ]


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        (Faults(wrong=0.5), "wrong: output 'y' differs by"),
        (Faults(early_return=True), "wrong: run() returns before its outputs are there"),
        (Faults(lost_after=0), "failed: s0_3: run failed: the device is lost"),
    ],
)
def test_processor_that_is_not_right_is_named_and_never_planned(
    cli: Any, gpu: Any, model: Path, tmp_path: Path, faults: Faults, said: str
) -> None:
    gpu(faults)
    done = cli("profile", model)
    assert done.code == 4
    assert any(line.startswith("warning: s0_3 on gpu " + said) for line in done.err.splitlines()), done.err
    assert done.err.splitlines()[-1].startswith("edgeengine: no processor runs scale right: gpu ")
    (tmp_path / "w.toml").write_text(f'[[task]]\nname = "t"\nmodel = "{model}"\nperiod_ms = 20\n')
    done = cli("plan", "w.toml")
    assert done.code == 3
    assert "s0_3 is left out on gpu: " + said.replace(": ", ", ", 1) in done.err


def test_nothing_is_run_at_the_period_where_no_processor_is_right(cli: Any, gpu: Any, model: Path) -> None:
    gpu(Faults(wrong=0.5))
    done = cli("profile", model, "--period-ms", "20")
    assert done.code == 4 and "nothing is measured at the period" in done.err
    assert done.err.splitlines()[-1].startswith("edgeengine: no processor runs scale right")


def test_a_share_is_measured_the_rest_is_predicted_and_only_the_first_is_kept(
    cli: Any, gpu: Any, model: Path, tmp_path: Path
) -> None:
    gpu()
    done = cli("profile", model, "--share", "0.5", "--json")
    rows = json.loads(done.out)["rows"]
    measured = [r for r in rows if r["ended"] != "predicted"]
    assert (len(rows), len(measured)) == (6, 3) and done.code == 0
    assert all(r["latency"]["n"] == 0 and r["verdict"] == "unchecked" and r["half_width"] > 0 for r in rows if r not in measured)
    stored = ProfileStore(tmp_path / "state/edgeengine/profile.sqlite").rows(device_id())
    assert {r.subgraph for r in stored} == {r["subgraph"] for r in measured}
    table = cli("profile", model, "--share", "0.5").out
    assert table.count("~2.0") == 3 and table.count("predicted") == 3
    few = cli("profile", model, "--share", "0.01")
    assert few.code == 2 and "does not reach the whole model" in few.err


def test_what_was_predicted_is_not_kept_with_what_was_measured_at_the_period(
    cli: Any, gpu: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rehearsal is a stub: it would run on real processors for a second."""
    pytest.importorskip("sklearn", reason="the extra fit is not installed")
    gpu()

    def rehearsed(workload: Workload, plan: Plan, *_: object, **__: object) -> Rehearsal:
        (task,) = plan.tasks
        return Rehearsal({(task.task, s.subgraph, s.processor): Latency.constant(9) for s in task.steps}, {}, {})

    monkeypatch.setattr("edgeengine.cli.profile_here.rehearse", rehearsed)
    done = cli("profile", model, "--share", "0.5", "--period-ms", "20", "--json")
    assert done.code == 0, done.err
    assert {r["ended"] for r in json.loads(done.out)["rows"]} >= {"predicted"}
    stored = ProfileStore(tmp_path / "state/edgeengine/profile.sqlite").rows(device_id())
    assert {r.condition for r in stored} == {"back_to_back", "period:20"}
    assert all(r.latency.n and r.ended != "predicted" for r in stored)


def test_what_is_known_is_not_measured_again_unless_asked(cli: Any, gpu: Any, model: Path) -> None:
    made = gpu()
    cli("profile", model)
    before = made.runs
    done = cli("profile", model)
    assert (done.code, made.runs) == (0, before)
    assert done.err == "6 of 6 known to within 0.02 of the median; --again measures them anew\n"
    cli("profile", model, "--again")
    after = made.runs
    assert after > before
    cli("profile", model, "--machine")
    assert made.runs > after


def test_interrupted_profile_keeps_its_rows(
    cli: Any, gpu: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu()
    cli("profile", model)
    burst, bursts = Series.burst, 0

    def interrupted(*arguments: Any, **named: Any) -> None:
        nonlocal bursts
        bursts += 1
        if bursts > 6 * 8:
            raise KeyboardInterrupt
        burst(*arguments, **named)

    monkeypatch.setattr(Series, "burst", interrupted)
    monkeypatch.setattr(Series, "half_width", lambda self: 0.5 if self.medians else None)
    done = cli("profile", model, "--again")
    assert (done.code, done.out) == (130, "")
    rows = ProfileStore(tmp_path / "state/edgeengine/profile.sqlite").rows(device_id())
    assert {(r.ended, r.latency.n) for r in rows} == {("interrupted", 24)}


def test_real_processor_is_profiled(cli: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "MATRICES", ((64, 64),))
    done = cli("profile", model, "--processor", "cpu0", "--seconds", "0.3", "--width", "0.5", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)["rows"]
    assert {(r["processor"], r["verdict"]) for r in rows} == {("cpu0", "ok")}
    assert all(r["resident_bytes"] > 0 and r["placement"]["nodes"].keys() == {"CPUExecutionProvider"} for r in rows)


# ---- what is kept ----


def test_profiles_are_listed_exported_and_merged(cli: Any, gpu: Any, model: Path, tmp_path: Path) -> None:
    gpu()
    cli("profile", model, "--state", "board")
    assert cli("profiles", "export", "board.json", "--state", "board").code == 0
    done = cli("profiles", "merge", "board.json", "board/profile.sqlite")
    assert done.code == 0
    total = len(json.loads((tmp_path / "board.json").read_bytes())["rows"]) + len(
        json.loads((tmp_path / "board.json").read_bytes())["machine"]
    )
    assert done.err.splitlines() == [
        f"board.json: {total} of {total} rows are new or later",
        f"board/profile.sqlite: 0 of {total} rows are new or later",
    ]
    assert cli("profiles", "--json").out == cli("profiles", "--json", "--state", "board").out
    assert "the machine" in cli("profiles").out


@pytest.mark.parametrize(
    "arguments",
    [["export"], ["merge"], ["export", "a.json", "b.json"], ["show"], ["merge", "absent.json"], ["merge", "bad.json"]],
)
def test_profiles_that_cannot_be_done_are_refused(cli: Any, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "bad.json").write_text("{}")
    done = cli("profiles", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("edgeengine: ") and done.err.count("\n") == 1


@pytest.mark.parametrize("width", ["0", "1", "-0.1", "nan"])
def test_width_must_be_a_share(cli: Any, model: Path, width: str) -> None:
    done = cli("profile", model, "--width", width)
    assert done.code == 2 and "--width" in done.err
