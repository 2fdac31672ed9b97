"""Whatever is wrong with the input is one line on stderr, with its exit code; nothing on stdout, nothing half-written."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeengine.bundle import Bundle
from tests.builders import plan, toml, workload

STATED = toml({"name": "t", "period_ms": 10, "latency_ms": {"npu": 3}})


@pytest.fixture
def files(tmp_path: Path, models: dict[str, Path]) -> Path:
    (tmp_path / "good.toml").write_bytes(STATED)
    (tmp_path / "bad.toml").write_bytes(toml({"name": "t", "period": 10}))
    (tmp_path / "not.toml").write_bytes(b"[[task")
    (tmp_path / "text.onnx").write_text("this is no model")
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "m.onnx").write_bytes(models["scale"].read_bytes())
    (tmp_path / "model.toml").write_bytes(toml({"name": "t", "model": "m.onnx", "period_ms": 10}))
    (tmp_path / "plan.json").write_text("{}")
    other = workload({"name": "other"})
    (tmp_path / "other.json").write_bytes(msgspec.json.encode(plan(other)))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 broken")
    (tmp_path / "slip.csv").write_text("processor,precision,latency_ms,gmacs\ncpu,float,1e-300,0.3\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/precious").write_text("keep")
    return tmp_path


BAD: dict[str, tuple[list[str], str]] = {
    "simulate, missing file": (["simulate", "none.toml"], "none.toml"),
    "simulate, no TOML": (["simulate", "not.toml"], "not.toml"),
    "simulate, unknown key": (["simulate", "bad.toml"], "period"),
    "simulate, unknown policy": (["simulate", "good.toml", "--policy", "lifo"], "lifo"),
    "simulate, negative seconds": (["simulate", "good.toml", "--seconds", "-1"], "--seconds"),
    "simulate, no seconds": (["simulate", "good.toml", "--seconds", "0"], "--seconds"),
    "simulate, seconds that are no number": (["simulate", "good.toml", "--seconds", "nan"], "--seconds"),
    "simulate, plot of no sweep": (["simulate", "good.toml", "--plot", "p.html"], "--sweep"),
    "simulate, unknown key to sweep": (["simulate", "good.toml", "--sweep", "speed=1"], "speed"),
    "simulate, a folder for many runs": (["simulate", "good.toml", "--seeds", "2", "-o", "run"], "one run"),
    "report, no run": (["report", "nowhere", "-o", "r.html"], "result.json"),
    "report, nothing to write": (["report", "nowhere"], "-o FILE.html"),
    "simulate, unknown times": (["simulate", "good.toml", "--times", "best"], "best"),
    "simulate, unknown device": (["simulate", "good.toml", "--device", "acme"], "acme"),
    "simulate, device without the processor": (["simulate", "good.toml", "--device", "pi4"], "npu"),
    "simulate, missing plan": (["simulate", "good.toml", "--plan", "none.json"], "none.json"),
    "simulate, plan and device": (["simulate", "good.toml", "--plan", "other.json", "--device", "pi4"], "leave out --device"),
    "simulate, no plan": (["simulate", "good.toml", "--plan", "plan.json"], "plan.json"),
    "simulate, plan of another workload": (["simulate", "good.toml", "--plan", "other.json"], "another version"),
    "simulate, output that cannot be": (["simulate", "good.toml", "-o", "good.toml/run"], "cannot write"),
    "run, missing file": (["run", "none.toml"], "none.toml"),
    "run, negative seconds": (["run", "model.toml", "--seconds", "-1"], "--seconds"),
    "run, without models": (["run", "good.toml"], "simulate"),
    "plan, missing file": (["plan", "none.toml"], "none.toml"),
    "plan, a cap that is no number": (["plan", "good.toml", "--power-cap", "nan"], "--power-cap nan"),
    "plan, no power at all": (["plan", "good.toml", "--power-cap", "0"], "--power-cap 0"),
    "plan, processor of a described device": (["plan", "good.toml", "--device", "pi4", "--processor", "cpu0"], "--processor"),
    "plan, emulated there": (["plan", "good.toml", "--device", "pi4", "--emulated-speed", "measured"], "--emulated-speed"),
    "plan, mode without a name": (["plan", "model.toml", "--device", "pi4:"], "no mode ''"),
    "plan, unknown processor": (["plan", "model.toml", "--processor", "tpu"], "tpu"),
    "profile, unknown processor": (["profile", "m.onnx", "--processor", "tpu"], "tpu"),
    "profile, bad seconds": (["profile", "m.onnx", "--seconds", "0"], "--seconds"),
    "profile, endless": (["profile", "m.onnx", "--seconds", "inf"], "--seconds"),
    "profile, no time at all": (["profile", "m.onnx", "--seconds", "1e-12"], "--seconds"),
    "profile, integer that is too great": (["profile", "m.onnx", "--input", f"x={10**20}"], "--input x"),
    "profile, archive that is not there": (["profile", "m.onnx", "--input", "a=b/none.npz"], "a=b/none.npz"),
    "profile, option that is none": (["profile", "m.onnx", "--option", "fast"], "PROCESSOR.KEY=VALUE"),
    "profile, option of no processor": (["profile", "m.onnx", "--option", "tpu.speed=1"], "'tpu'"),
    "profile, option of what is not here": (
        ["profile", "m.onnx", "--option", "npu-rknpu.session.disable_prepacking=1"],
        "npu-rknpu",
    ),
    "profile, option given twice": (["profile", "m.onnx", "--option", "a.b=1", "--option", "a.b=2"], "twice"),
    "plan, option of no processor": (["plan", "model.toml", "--option", "tpu.speed=1"], "'tpu'"),
    "plan, option of a described device": (["plan", "good.toml", "--option", "npu.speed=1"], "--option"),
    "run, option of no processor": (["run", "model.toml", "--option", "tpu.speed=1"], "'tpu'"),
    "run, option beside a plan": (["run", "model.toml", "--plan", "plan.json", "--option", "tpu.speed=1"], "edgeengine plan"),
    "profile, missing file": (["profile", "none.onnx"], "none.onnx"),
    "inspect, missing file": (["inspect", "none.onnx"], "none.onnx"),
    "inspect, no model": (["inspect", "text.onnx"], "text.onnx"),
    "inspect, empty file": (["inspect", "empty.onnx"], "empty.onnx"),
    "inspect, folder": (["inspect", "folder"], "folder"),
    "inspect, bad shape": (["inspect", "m.onnx", "--shape", "x=2xthree"], "2xthree"),
    "inspect, shape without name": (["inspect", "m.onnx", "--shape", "2x3"], "--shape"),
    "build, missing file": (["build", "none.onnx", "-o", "m.edge"], "none.onnx"),
    "build, no model": (["build", "text.onnx", "-o", "m.edge"], "text.onnx"),
    "build, bad shape": (["build", "m.onnx", "-o", "m.edge", "--shape", "x=2x"], "--shape"),
    "build, bad input": (["build", "m.onnx", "-o", "m.edge", "--input", "x=much"], "--input"),
    "build, broken archive": (["build", "m.onnx", "-o", "m.edge", "--input", "broken.npz"], "broken.npz"),
    "build, over a folder": (["build", "m.onnx", "-o", "folder"], "folder"),
    "split, no way given": (["split", "m.onnx", "-o", "m.edge"], "--parts"),
    "split, unknown tensor": (["split", "m.onnx", "-o", "m.edge", "--at", "nothing"], "nothing"),
    "split, unknown processor": (["split", "m.onnx", "-o", "m.edge", "--for", "tpu"], "--for 'tpu'"),
    "split, option of no processor": (["split", "m.onnx", "-o", "m.edge", "--parts", "2", "--option", "tpu.speed=1"], "'tpu'"),
    "split, no parts": (["split", "m.onnx", "-o", "m.edge", "--parts", "0"], "0"),
    "devices, unknown name": (["devices", "show", "acme"], "acme"),
    "devices, show what": (["devices", "show"], "show what"),
    "devices, output of show": (["devices", "show", "pi4", "-o", "x.toml"], "calibrate"),
    "devices, anchors of none": (["devices", "--from", "x.csv"], "calibrate"),
    "devices, calibrated by a slip": (["devices", "calibrate", "--from", "slip.csv", "--like", "pi4", "-o", "x.toml"], "1e-300"),
    "devices, unknown action": (["devices", "melt"], "melt"),
    "demo, bad seconds": (["demo", "--seconds", "0"], "--seconds"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2(case: str, files: Path, cli: Any) -> None:
    arguments, word = BAD[case]
    before = _content(files)
    done = cli(*arguments)
    assert done.code == 2, done.err
    assert done.out == ""
    assert done.err.count("\n") == 1 and done.err.startswith("edgeengine: "), done.err
    assert word in done.err
    assert _content(files) == before


def _content(folder: Path) -> dict[str, bytes]:
    """All files but the state, which commands may start."""
    files = (f for f in folder.rglob("*") if f.is_file())
    return {str(f.relative_to(folder)): f.read_bytes() for f in files if "state" not in f.relative_to(folder).parts}


@pytest.mark.parametrize("command", ["profile", "convert", "inspect"])
def test_name_that_is_no_text_is_refused(cli: Any, command: str) -> None:
    done = cli(command, os.fsdecode(b"bad\xff.onnx"))
    assert done.code == 2 and "not UTF-8" in done.err and done.err.count("\n") == 1


def test_bundle_that_was_changed_is_refused(cli: Any, bundles: dict[str, Bundle], tmp_path: Path) -> None:
    shutil.copytree(bundles["scale"].path, tmp_path / "m.edge")
    next((tmp_path / "m.edge").glob("*.onnx")).write_bytes(b"tampered")
    done = cli("profile", "m.edge")
    assert done.code == 2
    assert "changed since the bundle was built" in done.err


def test_workload_that_nothing_can_run_is_infeasible(cli: Any, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeengine.cli.resolve.discover", lambda *_: [])
    done = cli("plan", "model.toml")
    assert done.code == 3, done.err
    assert done.err.count("\n") == 1 and "no usable processor" in done.err


def test_defect_of_ours_shows_where_and_exits_with_70(cli: Any, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("edgeengine.simulation.stream", broken)
    done = cli("simulate", "good.toml")
    assert done.code == 70
    assert "a bug" in done.err and "please report it" in done.err


def test_interrupted_command_exits_with_130(cli: Any, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgeengine.simulation.stream", interrupted)
    assert cli("simulate", "good.toml").code == 130


def test_missing_package_is_named(cli: Any, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    done = cli("app", "new", "doorbell")
    assert done.code == 2 and done.err.count("\n") == 1 and "needs onnx" in done.err and "edgeengine[cli]" in done.err
    assert not list(files.glob("*doorbell*"))
