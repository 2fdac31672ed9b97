"""Commands on processors that are not plain cores: emulated ones are told apart, what falls back is refused when asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeengine.bundle import Bundle, open_bundle
from edgeengine.devices import discover
from edgeengine.errors import PlanInfeasible
from edgeengine.spec import Latency, Plan, Processor, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import load_workload
from tests.builders import processor, toml
from tests.emulator import CPU, NPU, QNN, convnet, needs_emulator


@needs_emulator
def test_devices_lists_the_emulator_as_such(cli: Any) -> None:
    done = cli("devices", "--json")
    assert done.code == 0, done.err
    found = {p["name"]: p for p in json.loads(done.out)["processors"]}
    assert found[NPU]["usable"] and found[NPU]["provider"] == QNN
    assert found["gpu-qnn"]["usable"] or found["gpu-qnn"]["reason"]


@needs_emulator
def test_split_for_the_npu_and_run_strict(cli: Any, tmp_path: Path) -> None:
    """The cut gives the NPU what it takes whole; run whole on it, the model is refused in strict mode, and the ops named."""
    convnet(tmp_path / "erf.onnx", middle="Erf")
    done = cli("split", "erf.onnx", "-o", "erf.edge", "--for", NPU, "--json")
    assert done.code == 0, done.err
    placements = json.loads(done.out)["placements"]
    assert [set(p["nodes"]) for p in placements.values()] == [{QNN}, {CPU}, {QNN}]
    (tmp_path / "w.toml").write_bytes(toml({"name": "net", "model": "erf.edge", "period_ms": 200, "deadline_ms": 60_000}))
    bundle, tasks = open_bundle(tmp_path / "erf.edge"), load_workload(tmp_path / "w.toml")
    npu = next(p for p in discover() if p.name == NPU)
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan_on(npu, bundle, tasks.sha256)))
    lenient = cli("run", "w.toml", "--plan", "plan.json", "--seconds", "0.3", "--json")
    assert lenient.code == 0, lenient.err
    assert json.loads(lenient.out)["tasks"][0]["met"] == 2
    strict = cli("run", "w.toml", "--plan", "plan.json", "--seconds", "0.3", "--strict")
    assert strict.code == 4 and "Erf (middle)" in strict.err and strict.err.count("\n") <= 2
    profiled = cli("profile", "erf.edge", "--processor", NPU, "--seconds", "0.1", "--strict")
    assert profiled.code == 4 and "Erf (middle)" in profiled.err


def plan_on(where: Processor, bundle: Bundle, workload: str) -> Plan:
    whole = bundle.manifest.whole
    step = Step(whole.name, 0, whole.stop, where.name, Latency.constant(1_000_000))
    return Plan(SCHEMA, "here", workload, (where,), (TaskPlan("net", bundle.hash, whole.stop, (step,)),))


@needs_emulator
def test_split_for_a_processor_that_takes_nothing_or_is_not_there(cli: Any, models: dict[str, Path]) -> None:
    nothing = cli("split", models["scale"], "-o", "s.edge", "--for", NPU)
    assert nothing.code == 3 and "too small" in nothing.err
    for name, code in (("gpu-qnn", 3), ("npu-nowhere", 2)):
        done = cli("split", models["scale"], "-o", "s.edge", "--for", name)
        assert done.code == code, done.err


EMULATED = processor("npu", "npu", emulated=True)


def test_planning_leaves_emulated_processors_out(
    cli: Any, bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their measured speed is that of an emulator: only plans that say so may stand on it."""
    cpu = next(p for p in discover() if p.kind == "cpu")
    fast = Processor("npu", "npu", cpu.provider, cpu.resources, cpu.host_core, emulated=True)
    monkeypatch.setattr("edgeengine.cli.resolve.discover", lambda *_: [cpu, fast])
    asked: list[list[str]] = []

    def prepare(*_: object, processors: list[Processor], **__: object) -> None:
        asked.append([p.name for p in processors])
        raise PlanInfeasible("enough")

    monkeypatch.setattr("edgeengine.cli.resolve.prepare", prepare)
    (tmp_path / "w.toml").write_bytes(toml({"name": "scale", "model": str(bundles["scale"].path), "period_ms": 50}))
    named = ("--processor", "npu", "--processor", cpu.name)
    done = cli("plan", "w.toml", *named)
    assert asked == [[cpu.name]] and "npu is emulated: not planned on" in done.err.replace("\n", " ")
    cli("plan", "w.toml", *named, "--emulated-speed", "measured")
    assert asked[1:] == [["npu", cpu.name]]
    done = cli("plan", "w.toml", "--processor", "npu")
    assert done.code == 3 and "--emulated-speed measured" in done.err
    done = cli("plan", "w.toml", *named, "--emulated-speed", "guessed")
    assert done.code == 2 and "'measured'" in done.err
    assert len(asked) == 2


def test_profiling_measures_an_emulated_processor_only_if_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from edgeengine.cli.resolve import choose_processors

    cpu = processor("cpu0", "core0")
    monkeypatch.setattr("edgeengine.cli.resolve.discover", lambda *_: [cpu, EMULATED])
    assert choose_processors(None, tell=True) == [cpu]
    assert "npu is emulated" in capsys.readouterr().err
    assert choose_processors(["npu"]) == [EMULATED]
    assert choose_processors(["npu", "cpu0", "npu"]) == [EMULATED, cpu], "one that is named twice is measured once"


def test_processor_that_is_named_and_not_usable_is_never_left_out_in_silence(
    cli: Any, monkeypatch: pytest.MonkeyPatch, bundles: dict[str, Bundle]
) -> None:
    gone = msgspec.structs.replace(processor("gpu", "gpu"), usable=False, reason="its driver is missing")
    monkeypatch.setattr("edgeengine.cli.resolve.discover", lambda *_: [processor("cpu0", "core0"), gone])
    for named in (("cpu0", "gpu"), ("gpu",)):
        done = cli("profile", bundles["scale"].path, *(word for name in named for word in ("--processor", name)))
        assert (done.code, done.err) == (3, "edgeengine: --processor 'gpu' is not usable: its driver is missing\n")


@needs_emulator
def test_misspelt_option_of_a_provider_is_refused(cli: Any, models: dict[str, Path]) -> None:
    done = cli("profile", models["scale"], "--processor", NPU, "--option", f"{NPU}.htp_performance_mod=burst")
    assert done.code == 2 and "did you mean 'htp_performance_mode'" in done.err
