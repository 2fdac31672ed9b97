"""Real models on described devices, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices import load_profile
from tests.builders import toml
from tests.graph.onnxes import model, node, weight, x_in
from tests.models import model_file

PHONE = "snapdragon-8-gen-3"
BOARD = """
description = "a board"
chip = "a chip"
[[processor]]
name = "npu"
kind = "npu"
resources = ["npu"]
description = "an NPU"
memory = "npu"
runs = "qnn"
[processor.speed.float]
runtime = "onnx"
overhead = { value = 0.5, unit = "ms", source = "x", status = "guessed", low = 0.4, high = 0.8 }
rate = { value = 100.0, unit = "GMAC/s", source = "x", status = "guessed", low = 50.0, high = 150.0 }
"""
CPU = """
[[processor]]
name = "cpu"
kind = "cpu"
resources = ["core0"]
description = "a core"
[processor.speed.float]
runtime = "onnx"
overhead = { value = 1.0, unit = "ms", source = "x", status = "guessed" }
rate = { value = 10.0, unit = "GMAC/s", source = "x", status = "guessed" }
[[link]]
one = "host"
other = "npu"
latency = { value = 2.0, unit = "ms", source = "x", status = "guessed" }
bandwidth = { value = 1.0, unit = "GB/s", source = "x", status = "guessed" }
"""


@pytest.fixture
def celu(tmp_path: Path) -> Path:
    """x [1, 8] -> Celu -> MatMul: an operator that no NPU's table has, then one that is in it."""
    nodes = [node("Celu", ["x"], ["a"]), node("MatMul", ["a", "w"], ["y"])]
    onnx.save(model(nodes, [x_in(1, 8)], ["y"], [weight("w", np.ones((8, 8)))]), tmp_path / "celu.onnx")
    return tmp_path / "celu.onnx"


def test_real_models_with_training_on_a_phone(cli: Any, tmp_path: Path) -> None:
    """The whole question, one command: rows with the interval of each miss rate, and what they rest on."""
    table = [
        {"name": "wake", "model": str(model_file("embedding")), "period_ms": 80, "criticality": "high"},
        {"name": "turned", "model": str(model_file("ocr-direction")), "period_ms": 100, "shapes": {"x": "1x3x48x192"}},
        {"name": "learn", "model": str(model_file("embedding")), "kind": "train"},
    ]
    (tmp_path / "w.toml").write_bytes(toml(*table))
    done = cli("simulate", "w.toml", "--device", PHONE, "--seconds", "2", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    rows = {r["task"]: r for r in document["tasks"]}
    assert document["seeds"] == 20 and rows.keys() == {"wake", "turned", "learn"}
    assert all(r["miss_low"] <= r["miss_rate"] <= r["miss_high"] and r["released"] > 0 for r in rows.values())
    assert rows["learn"]["basis"] == "estimated" and rows["learn"]["met"] > 0
    assert cli("simulate", "w.toml", "--device", PHONE, "--seconds", "2", "--json").out == done.out
    planned = json.loads(cli("plan", "w.toml", "--device", PHONE, "--json", "-o", "plan.json").out)
    assert {t["task"]: {s["processor"] for s in t["steps"]} for t in planned["tasks"]}["learn"] <= {
        "cpu-prime",
        "cpu-big",
        "cpu-all",
    }
    assert planned["effects"]["throttle"] and planned["effects"]["slowdown"]["npu"]
    assert cli("simulate", "w.toml", "--plan", "plan.json", "--seconds", "1", "-o", "run").code == 0


def test_predicted_rows_say_so_with_their_bounds(cli: Any, bundles: dict[str, Bundle]) -> None:
    done = cli("profile", bundles["scale"].path, "--device", PHONE, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["device"] == f"qualcomm/{PHONE}"
    names = {p.name for p in load_profile(PHONE).processors}
    subgraphs = {s.name for s in bundles["scale"].manifest.subgraphs}
    assert {(r["subgraph"], r["processor"]) for r in document["rows"]} == {(s, p) for s in subgraphs for p in names}
    for row in document["rows"]:
        low, high = row["interval_ns"]
        assert row["ended"] in ("predicted", "estimated") and low < row["latency"]["quantiles_ns"][6] < high
    table = cli("profile", bundles["scale"].path, "--device", PHONE, "--processor", "npu")
    assert (table.code == 0 and " to " in table.out and "estimated" in table.out) or "predicted" in table.out


def test_operator_that_is_not_taken_falls_back_and_travels_twice(cli: Any, celu: Path, tmp_path: Path) -> None:
    (tmp_path / "board.toml").write_text(BOARD + CPU)
    done = cli("profile", celu, "--device", "board.toml", "--processor", "npu", "--json")
    assert done.code == 0, done.err
    whole = next(r for r in json.loads(done.out)["rows"] if r["placement"]["fallback"])
    (fallback,) = whole["placement"]["fallback"]
    assert (fallback["op"], fallback["provider"], whole["placement"]["copies"]) == ("Celu", "cpu", 2)
    assert whole["latency"]["quantiles_ns"][6] == pytest.approx(0.5e6 + 2 * 2e6, rel=0.01)
    assert "Celu fell back to cpu" in done.err


def test_device_that_cannot_run_a_model_is_infeasible_by_operator(cli: Any, celu: Path, tmp_path: Path) -> None:
    (tmp_path / "board.toml").write_text(BOARD)
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "model": str(celu), "period_ms": 10}))
    for arguments in (["simulate", "w.toml"], ["plan", "w.toml", "-o", "p.json"], ["profile", celu]):
        done = cli(*arguments, "--device", "board.toml")
        assert (done.code, done.out) == (3, "") and "Celu" in done.err and "npu" in done.err
        assert done.err.count("\n") == 1
    assert not (tmp_path / "p.json").exists()


def test_throughput_only_device_and_training_without_a_cpu_are_infeasible(cli: Any, bundles: Any, tmp_path: Path) -> None:
    path = str(bundles["scale"].path)
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "model": path, "period_ms": 10}))
    done = cli("simulate", "w.toml", "--device", "hailo-8")
    assert done.code == 3 and "its throughput is known, its latencies are not" in done.err
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "model": path, "kind": "train"}))
    done = cli("simulate", "w.toml", "--device", "iq-9075")
    assert done.code == 3 and "training runs on the CPU" in done.err


def test_xrbench_on_a_device_is_estimated_and_scored(cli: Any) -> None:
    done = cli("simulate", "xr:vr_gaming", "--device", PHONE, "--seconds", "0.7", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert {r["basis"] for r in document["tasks"]} == {"estimated"} and document["seeds"] == 20
    assert 0 < document["score"]["strict"] <= document["score"]["as_coded"] <= 100
    one = json.loads(cli("simulate", "xr:vr_gaming", "--device", PHONE, "--seconds", "0.7", "--seeds", "1", "--json").out)
    assert 0 < one["score"]["strict"] <= 100


def test_sweep_over_devices_and_modes(cli: Any, bundles: dict[str, Bundle], tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "model": str(bundles["scale"].path), "period_ms": 40}))
    done = cli(
        "simulate", "w.toml", "--sweep", "device=pi4,jetson-nano:5w,hailo-8", "--times", "median", "--seconds", "1", "--json"
    )
    assert done.code == 0, done.err
    feasible = {p["point"]["device"]: p["feasible"] for p in json.loads(done.out)["points"]}
    assert feasible.keys() == {"pi4", "jetson-nano:5w", "hailo-8"} and not feasible["hailo-8"]


def test_answers_kept_for_a_device_are_not_taken_for_those_of_another_by_that_name(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "period_ms": 10, "latency_ms": {"cpu": 3, "npu": 3}}))
    sweep = ("simulate", "w.toml", "--sweep", "device=board.toml", "--kept", "kept.jsonl", "--seconds", "0.1", "--json")
    kept = []
    for text in (BOARD + CPU, BOARD + CPU, (BOARD + CPU).replace("rate = { value = 10.0", "rate = { value = 20.0")):
        (tmp_path / "board.toml").write_text(text)
        assert cli(*sweep).code == 0
        kept.append(len((tmp_path / "kept.jsonl").read_text().splitlines()))
    assert kept == [1, 1, 2]


def test_stated_latencies_on_a_described_device_keep_its_effects(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "period_ms": 10, "latency_ms": {"npu": 3}}))
    planned = json.loads(cli("plan", "w.toml", "--device", PHONE, "--json").out)
    assert planned["effects"]["slowdown"] and [t["basis"] for t in planned["tasks"]] == ["stated"]


def test_calibrated_device_is_written_shown_and_used(cli: Any, bundles: dict[str, Bundle], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "processor,precision,model_key,gmacs,latency_ms\ncpu,float,tv/resnet18@224,,20\nnpu,fp16,,1.8,2\n"
    )
    done = cli("devices", "calibrate", "--from", "a.csv", "--like", PHONE, "-o", "mine.toml", "--json")
    assert done.code == 0, done.err
    assert {s["runtime"] for p in json.loads(done.out)["processor"] for s in p["speed"].values()} >= {"ncnn", "onnx"}
    assert cli("devices", "show", "mine.toml").code == 0
    assert cli("profile", bundles["scale"].path, "--device", "mine.toml", "--json").code == 0
    before = (tmp_path / "mine.toml").read_bytes()
    (tmp_path / "a.csv").write_text("processor,precision,gmacs,latency_ms\nnpu,float,1.8,-1\n")
    failed = cli("devices", "calibrate", "--from", "a.csv", "--like", PHONE, "-o", "mine.toml")
    assert failed.code == 2 and "a.csv, line 2: latency_ms" in failed.err
    assert (tmp_path / "mine.toml").read_bytes() == before and not list(tmp_path.glob("*.tmp"))


def test_device_calibrates_by_what_was_measured_on_it(cli: Any, bundles: dict[str, Bundle], tmp_path: Path) -> None:
    """`profiles export` on the device, `devices calibrate` elsewhere; a bundle that is not at hand is asked for."""
    bundle = bundles["frames"] if bundles["frames"].manifest.whole.macs else bundles["total"]
    rows = json.loads(cli("profile", bundle.path, "--device", "pi4", "--processor", "cpu0", "--json").out)["rows"]
    for row in rows:
        row |= {"ended": "width", "interval_ns": None}
    (tmp_path / "board.json").write_text(json.dumps({"schema": 1, "rows": rows, "machine": []}))
    done = cli("devices", "calibrate", "--from", "board.json", "--like", "pi4", "-o", "mine.toml")
    assert done.code == 2 and "give it with --bundle" in done.err
    done = cli("devices", "calibrate", "--from", "board.json", "--like", "pi4", "-o", "mine.toml", "--bundle", bundle.path)
    assert done.code == (0 if bundle.manifest.whole.macs else 2), done.err


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["profile", "celu.onnx", "--device", PHONE, "--share", "0.5"], "--share"),
        (["profile", "celu.onnx", "--device", PHONE, "--processor", "tpu"], "'tpu': not on"),
        (["profile", "celu.onnx", "--device", "nokia"], "'nokia'"),
        (["devices", "calibrate", "--from", "a.csv", "--like", "pi4"], "calibrate --from"),
        (["devices", "calibrate", "--from", "a.csv", "--like", "pi4", "-o", "x.json"], ".toml"),
        (["devices", "calibrate", "--from", "a.csv", "--like", "nokia", "-o", "x.toml"], "a.csv"),
        (["devices", "show"], "show"),
    ],
)
def test_bad_input_is_one_line(cli: Any, celu: Path, arguments: list[str], word: str) -> None:
    done = cli(*arguments)
    assert (done.code, done.out) == (2, "") and word in done.err
    assert done.err.count("\n") == 1
