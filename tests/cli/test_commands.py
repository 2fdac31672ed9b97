"""Commands end to end: what they print, and what they leave in files."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeengine.bundle import Bundle, open_bundle
from edgeengine.events import load_log
from edgeengine.planning import load_plan
from edgeengine.scheduling import make_policy
from edgeengine.workload import load_workload
from tests.builders import real_plan, toml
from tests.scheduling.driver import replay

ROW = [
    "task",
    "criticality",
    "released",
    "met",
    "late",
    "dropped",
    "failed",
    "rejected",
    "miss_rate",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
]
STATED = toml(
    {"name": "camera", "period_ms": 10, "latency_ms": {"npu": 4, "cpu": 9}, "segments": 2, "criticality": "high"},
    {"name": "pose", "after": "camera", "latency_ms": {"npu": 5}},
    {"name": "video", "rate_hz": 100, "latency_ms": {"cpu": 12}, "deadline_ms": 30},
)


def one_document(out: str) -> Any:
    """stdout holds one JSON document and nothing else."""
    return json.loads(out)


def check_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert list(row) == ROW
        ends = [row[k] for k in ("met", "late", "dropped", "failed", "rejected")]
        assert sum(ends) == row["released"]
        if row["released"]:
            assert row["miss_rate"] == pytest.approx(1 - row["met"] / row["released"])


def test_simulation_of_stated_latencies_from_file_to_folder(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(STATED)
    done = cli("simulate", "w.toml", "--seconds", "1", "--json", "-o", "run", "--jobs", "jobs.csv")
    assert done.code == 0, done.err
    document = one_document(done.out)
    check_rows(document["tasks"])
    assert [(r["task"], r["released"]) for r in document["tasks"]] == [("camera", 100), ("pose", 100), ("video", 100)]
    assert document["tasks"][0]["met"] == 100 and document["tasks"][0]["p50_ms"] == 4
    assert document["tasks"][2]["miss_rate"] > 0
    run = tmp_path / "run"
    assert sorted(f.name for f in run.iterdir()) == ["events.jsonl", "jobs.csv", "plan.json", "profile.json", "result.json"]
    assert json.loads((run / "result.json").read_bytes()) == document
    assert (run / "jobs.csv").read_bytes() == (tmp_path / "jobs.csv").read_bytes()
    lines = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    assert len(lines) == 300
    assert list(lines[0]) == [
        "task",
        "index",
        "release_ms",
        "deadline_ms",
        "start_ms",
        "finish_ms",
        "outcome",
        "cause",
        "energy_mj",
    ]
    assert all(bool(line["cause"]) == (line["outcome"] != "met") for line in lines)
    log = load_log((run / "events.jsonl").read_bytes())
    planned = load_plan(run / "plan.json")
    assert replay(load_workload("w.toml"), planned, make_policy("edf"), log) == [line.actions for line in log]
    again = cli("simulate", "w.toml", "--seconds", "1", "--json", "--plan", "run/plan.json")
    assert one_document(again.out) == document


def test_simulation_prints_a_row_per_task(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(STATED)
    done = cli("simulate", "w.toml", "--seconds", "1", "--policy", "fifo")
    assert done.code == 0 and done.err == ""
    assert [line.split()[0] for line in done.out.splitlines() if line.split() and line.split()[0] in ("camera", "pose", "video")]
    assert "fifo" in done.out


def test_plan_of_stated_latencies_is_written_and_printed(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(STATED)
    done = cli("plan", "w.toml", "--json", "-o", "plan.json")
    assert done.code == 0
    assert msgspec.convert(one_document(done.out), type(load_plan("plan.json"))) == load_plan("plan.json")


def test_plan_for_a_described_device(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "period_ms": 10, "latency_ms": {"npu": 3}}))
    done = cli("plan", "w.toml", "--device", "snapdragon-8-gen-3", "--json")
    assert {p["name"] for p in one_document(done.out)["processors"]} >= {"cpu-all", "gpu", "npu"}


@pytest.mark.parametrize("arguments", [["devices"], ["devices", "show", "pi4"]])
def test_devices_as_table_and_as_document(cli: Any, arguments: list[str]) -> None:
    assert cli(*arguments).code == 0
    done = cli(*arguments, "--json")
    assert done.code == 0
    document = one_document(done.out)
    if arguments == ["devices"]:
        assert {"name", "kind", "provider", "emulated", "usable"} <= document["processors"][0].keys()
        assert "raspberrypi/pi4" in document["profiles"]


def test_model_is_built_and_inspected(cli: Any, tmp_path: Path, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("inspect", models["scale"], "--json")
    assert done.code == 0, done.err
    assert one_document(done.out)["nodes"] == 4
    done = cli("split", models["scale"], "-o", "m.edge", "--parts", "2", "--json")
    assert done.code == 0, done.err
    document = one_document(done.out)
    assert (document["verified"], len(document["parts"])) == (True, 2)
    assert open_bundle(tmp_path / "m.edge").hash == document["hash"]


def test_help_lists_the_commands_and_each_has_examples(cli: Any) -> None:
    done = cli("--help")
    assert done.code == 0
    for command in ("demo", "devices", "inspect", "split", "build", "profile", "profiles", "plan", "run", "simulate"):
        assert command in done.out
        assert f"edgeengine {command}" in cli(command, "--help").out


# ---- live ----


@pytest.fixture
def live(tmp_path: Path, bundles: dict[str, Bundle]) -> Path:
    """A workload on a real bundle with its plan: nothing needs measuring."""
    raw = toml({"name": "scale", "model": str(bundles["scale"].path), "period_ms": 20, "deadline_ms": 5000})
    (tmp_path / "w.toml").write_bytes(raw)
    tasks = load_workload(tmp_path / "w.toml")
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(real_plan(tasks, bundles)))
    return tmp_path


def test_xr_scenarios_are_scored(cli: Any) -> None:
    done = cli("simulate", "xr:vr_gaming", "--seconds", "0.7", "--json")
    score = one_document(done.out)["score"]
    assert 90 < score["strict"] <= score["as_coded"] <= 100
    assert "XRBench score" in cli("simulate", "xr:vr_gaming", "--seconds", "0.7").err
    unknown = cli("simulate", "xr:vr_sleeping")
    assert unknown.code == 2 and "vr_gaming" in unknown.err


@pytest.mark.parametrize("name", ["disb:A", "disb:E", "band:sample"])
def test_published_workloads_are_simulated_by_name(cli: Any, name: str) -> None:
    done = cli("simulate", name, "--seconds", "0.2", "--policy", "price", "--json")
    assert done.code == 0, done.err
    assert [r["task"] for r in json.loads(done.out)["tasks"]] == [t.name for t in load_workload(name).tasks]
    wrong = cli("simulate", f"{name.partition(chr(58))[0]}:nothing")
    assert wrong.code == 2 and "choose one of" in wrong.err


def test_admission_names_what_would_make_it_fit(cli: Any, tmp_path: Path) -> None:
    camera = {"name": "camera", "latency_ms": {"npu": 2}, "period_ms": 10, "criticality": "high"}
    (tmp_path / "w.toml").write_bytes(toml(camera))
    done = cli("plan", "w.toml", "--admit", "--json")
    (task,) = one_document(done.out)["tasks"]
    assert done.code == 0 and task["verdict"] == "guaranteed" and task["guarantee"]["response_ns"] == 2_400_000
    (tmp_path / "w.toml").write_bytes(toml(camera | {"latency_ms": {"npu": 12}}))
    done = cli("plan", "w.toml", "--admit", "-o", "plan.json")
    assert done.code == 3 and "deadline_ms = 14.4" in done.err and load_plan("plan.json").tasks[0].verdict == "refused"


def test_live_run_prints_and_leaves_what_a_simulated_one_does(cli: Any, live: Path) -> None:
    done = cli("run", "w.toml", "--plan", "plan.json", "--seconds", "0.2", "--json", "-o", "run", "--jobs", "jobs.csv")
    assert done.code == 0, done.err
    document = one_document(done.out)
    check_rows(document["tasks"])
    assert (document["mode"], document["interrupted"], document["tasks"][0]["met"]) == ("live", False, 10)
    assert len((live / "jobs.csv").read_text().splitlines()) == 11
    log = load_log((live / "run/events.jsonl").read_bytes())
    assert replay(load_workload("w.toml"), load_plan("plan.json"), make_policy("edf"), log) == [line.actions for line in log]


def test_plan_for_another_build_is_refused(cli: Any, live: Path, bundles: dict[str, Bundle]) -> None:
    planned = load_plan(live / "plan.json")
    other = msgspec.structs.replace(planned.tasks[0], bundle="0" * 64)
    (live / "plan.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(planned, tasks=(other,))))
    done = cli("run", "w.toml", "--plan", "plan.json", "--seconds", "0.1")
    assert done.code == 2
    assert "another build" in done.err


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_interrupted_run_ends_in_order_with_its_table(live: Path, bundles: dict[str, Bundle]) -> None:
    (live / "ourglue.py").write_text(
        "import sys\ndef told(arrays):\n    print('glue ran', file=sys.stderr, flush=True)\n    return arrays\n"
    )
    model = str(bundles["scale"].path)
    child = {"name": "child", "model": model, "after": "scale", "feed": {"x": "scale.y"}, "glue": "ourglue:told"}
    (live / "w.toml").write_bytes(toml({"name": "scale", "model": model, "period_ms": 20, "deadline_ms": 5000}, child))
    tasks = load_workload(live / "w.toml")
    (live / "plan.json").write_bytes(msgspec.json.encode(real_plan(tasks, bundles | {"child": bundles["scale"]})))
    command = [
        sys.executable,
        "-m",
        "edgeengine.cli.main",
        "run",
        "w.toml",
        "--plan",
        "plan.json",
        "--seconds",
        "600",
        "-o",
        "run",
    ]
    env = os.environ | {"XDG_STATE_HOME": str(live / "state"), "PYTHONPATH": str(live)}
    # A test run started in the background ignores SIGINT, and so would its children.
    with subprocess.Popen(
        command, cwd=live, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_interrupts
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "glue ran" in line:
                break
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert any("running" in line for line in said)
    assert "scale" in out and "child" in out
    assert "Traceback" not in err
    document = json.loads((live / "run/result.json").read_bytes())
    assert document["interrupted"] is True
    check_rows(document["tasks"])
    assert document["tasks"][0]["met"] > 0
