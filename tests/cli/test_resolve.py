"""What commands share: bundles and plans made once, and made again when what they depend on changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from edgeengine.bundle import Bundle, sha256
from edgeengine.cli.resolve import cached_build, machine_used, measured_plan
from edgeengine.engine.prepare import Prepared, machine_rows
from edgeengine.io import Source
from edgeengine.profiling import ProfileStore
from edgeengine.spec import Latency
from edgeengine.workload import Workload, load_workload
from tests.builders import real_plan, toml

SHAPES = {"x": (2, 3)}


# ---- bundles ----


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, bundles: dict[str, Bundle]) -> list[Path]:
    """Where bundles were built: a ready one is copied there instead."""
    folders: list[Path] = []

    def build(model: Path, folder: Path, **_: Any) -> Bundle:
        folders.append(folder)
        shutil.copytree(bundles["scale"].path, folder)
        return bundles["scale"]

    monkeypatch.setattr("edgeengine.graph.build_bundle", build)
    return folders


def test_bundle_is_built_once_per_content_shapes_and_values(built: list[Path], models: dict[str, Path], tmp_path: Path) -> None:
    for _ in range(2):
        cached_build(models["scale"], tmp_path, SHAPES, {"n": np.array([1, 2])})
    assert len(built) == 1
    cached_build(models["scale"], tmp_path, {"x": (4, 3)}, {"n": np.array([1, 2])})
    cached_build(models["scale"], tmp_path, SHAPES, {"n": np.array([1, 3])})
    other = Path(shutil.copy(models["total"], tmp_path / models["scale"].name))
    cached_build(other, tmp_path, SHAPES, {"n": np.array([1, 2])})
    assert len(set(built)) == len(built) == 4


def test_bundle_is_built_again_when_only_external_weights_changed(built: list[Path], tmp_path: Path) -> None:
    weight = onnx.numpy_helper.from_array(np.arange(600, dtype=np.float32), "w")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g",
        [value("x", 1, [600])], [value("y", 1, [600])], [weight],
    )  # fmt: skip
    file = tmp_path / "m.onnx"
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file, save_as_external_data=True, location="m.data", size_threshold=0)
    cached_build(file, tmp_path, {}, {})
    before = sha256(file)
    (tmp_path / "m.data").write_bytes(np.ones(600, np.float32).tobytes())
    cached_build(file, tmp_path, {}, {})
    assert sha256(file) == before
    assert len(set(built)) == 2


@pytest.mark.parametrize("harm", ["changed", "no manifest"])
def test_damaged_bundle_in_the_cache_is_built_again(
    built: list[Path], models: dict[str, Path], tmp_path: Path, harm: str, bundles: dict[str, Bundle]
) -> None:
    cached_build(models["scale"], tmp_path, SHAPES, {})
    if harm == "changed":
        next(built[0].glob("*.onnx")).write_bytes(b"tampered")
    else:
        (built[0] / "manifest.json").unlink()
    cached_build(models["scale"], tmp_path, SHAPES, {})
    assert len(built) == 2
    assert cached_build(models["scale"], tmp_path, SHAPES, {}).hash == bundles["scale"].hash
    assert len(built) == 2


# ---- plans ----


@pytest.fixture
def camera(tmp_path: Path, bundles: dict[str, Bundle]) -> Workload:
    """A workload whose only task reads a source of the app."""
    model = str(bundles["scale"].path)
    (tmp_path / "w.toml").write_bytes(toml({"name": "scale", "model": model, "period_ms": 20, "inputs": "source:camera"}))
    return load_workload(tmp_path / "w.toml")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, bundles: dict[str, Bundle]) -> list[Workload]:
    """The workloads that were measured, in no time."""
    seen: list[Workload] = []

    def prepare(workload: Workload, given: Any, store: Any, **_: Any) -> Prepared:
        seen.append(workload)
        plan = real_plan(workload, bundles)
        around = tuple(msgspec.structs.replace(t, around=Latency.constant(3)) for t in plan.tasks)
        plan = msgspec.structs.replace(plan, tasks=around, overheads={"timer": Latency.constant(5)})
        machine = machine_rows(plan, "then")
        store.put(machine)
        return Prepared(plan, [], machine)

    monkeypatch.setattr("edgeengine.cli.resolve.prepare", prepare)
    return seen


def quiet(text: str, share: float) -> None:
    pass


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_source_that_is_not_here_is_stood_in_for(cli: Any, camera: Workload, measured: list[Workload], command: str) -> None:
    done = cli(command, "w.toml", "--json")
    assert done.code == 0, done.err
    assert "source 'camera' is not here: measured with random inputs" in done.err
    assert [t.inputs for t in measured[0].tasks] == ["random:0"]


def test_source_that_is_given_is_used(camera: Workload, measured: list[Workload], bundles: Any, tmp_path: Path) -> None:
    class Camera:
        def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
            return {"x": np.zeros((2, 3), np.float32)}

    given: list[dict[str, Source]] = [{}, {"camera": Camera()}]
    for sources in given:  # what was measured with random inputs is not what was measured with real ones
        measured_plan(camera, {"scale": bundles["scale"]}, tmp_path, sources, quiet)
    assert [w.tasks[0].inputs for w in measured] == ["random:0", "source:camera"]


def test_live_run_wants_its_sources(cli: Any, camera: Workload, measured: list[Workload]) -> None:
    done = cli("run", "w.toml")
    assert (done.code, done.out, measured) == (2, "", [])
    assert done.err.count("\n") == 1
    assert "'camera'" in done.err and "Engine(..., sources={" in done.err and 'inputs = "file.npz"' in done.err


def test_plan_is_measured_once_per_version_and_again_when_its_file_is_damaged(
    camera: Workload, measured: list[Workload], bundles: dict[str, Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once() -> Prepared:
        return measured_plan(camera, {"scale": bundles["scale"]}, tmp_path, {}, quiet)

    assert once() == once()
    assert len(measured) == 1
    (cached,) = (tmp_path / "plans").iterdir()
    cached.write_text('{"schema": 99}')
    assert once() == once()
    assert len(measured) == 2
    monkeypatch.setattr("edgeengine.cli.resolve.versions", lambda: {"onnxruntime": "99"})
    once()
    assert len(measured) == 3


def test_run_with_a_plan_keeps_what_the_plan_was_made_from(
    cli: Any, camera: Workload, measured: list[Workload], bundles: dict[str, Bundle], tmp_path: Path
) -> None:
    assert cli("plan", "w.toml", "-o", "plan.json").code == 0
    assert cli("simulate", "w.toml", "--plan", "plan.json", "--seconds", "0.1", "-o", "run").code == 0
    profile = msgspec.json.decode((tmp_path / "run/profile.json").read_bytes())
    assert {(r["name"], r["measured_at"]) for r in profile["machine"]} == {("timer", "then"), ("around:scale", "then")}


def test_costs_in_a_plan_that_the_store_no_longer_has_are_still_named(
    camera: Workload, measured: list[Workload], bundles: dict[str, Bundle], tmp_path: Path
) -> None:
    plan = measured_plan(camera, {"scale": bundles["scale"]}, tmp_path, {}, quiet).plan
    found = machine_used(plan, ProfileStore(tmp_path / "other.sqlite"))
    assert {r.name: r.latency for r in found} == {"timer": Latency.constant(5), "around:scale": Latency.constant(3)}
