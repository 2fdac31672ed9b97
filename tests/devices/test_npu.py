"""A real NPU provider, emulated: what it takes, what falls back and why, what it computes, what it keeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime as ort
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Strict, compiled
from edgeengine.devices.providers.accelerator import Accelerator
from edgeengine.devices.providers.base import Executable, Traceable
from edgeengine.devices.providers.compiled import Cache
from edgeengine.devices.providers.qnn import QNN as ROW
from edgeengine.errors import DeviceError
from edgeengine.graph import build_bundle, child
from edgeengine.spec import Latency, Placement, Processor, Step
from edgeengine.testing import check_provider
from tests.emulator import CPU, NPU, QNN, convnet, image, needs_emulator, quantized, scale_of, whole
from tests.models import model_file

pytestmark = needs_emulator
CORES = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (0,)
Built = Callable[..., Bundle]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def provider(kept: Path) -> Accelerator:
    return Accelerator(ROW, cache=kept)


@pytest.fixture(scope="module")
def npu(provider: Accelerator) -> Processor:
    return next(p for p in provider.discover(CORES) if p.name == NPU)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    """A bundle of the model in one part, built in this process."""
    for module in ("shapes", "build"):
        monkeypatch.setattr(
            f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values)
        )

    def build(model: Path, **options: object) -> Bundle:
        return build_bundle(model, tmp_path / f"{model.stem}.edge", **({"parts": 1} | options))  # type: ignore[arg-type]

    return build


def reference(model: Path, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The whole model on the CPU, one thread, optimizations off: what docs/design.md compares with."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return np.asarray(ort.InferenceSession(str(model), options, providers=[CPU]).run(None, feeds)[0])


def placed(executable: Executable) -> Placement:
    assert executable.placement is not None
    return executable.placement


def test_discovery_tells_the_emulator_and_what_is_unusable_with_its_reason(provider: Accelerator) -> None:
    found = {p.name: p for p in provider.discover((0, 1))}
    assert set(found) == {NPU, "gpu-qnn"}  # QNN's CPU backend is no processor
    npu, gpu = found[NPU], found["gpu-qnn"]
    assert npu.usable and npu.kind == "npu"
    if npu.emulated:
        assert npu.resources == ("npu", "core1") and npu.host_core == 1
        assert not gpu.usable and "nitialize" in gpu.reason and gpu.resources == ("gpu",)


def test_it_keeps_the_contract(provider: Accelerator, bundles: dict[str, Bundle]) -> None:
    check_provider(provider, bundles["scale"], CORES)


@pytest.mark.parametrize("batch", [1, "N"])
def test_float_runs_whole_and_within_a_thousandth(
    provider: Accelerator, npu: Processor, built: Built, tmp_path: Path, batch: int | str
) -> None:
    """A free dimension is fixed to what the bundle was built with: QNN takes nothing of unknown shape."""
    model = convnet(tmp_path / "m.onnx", batch=batch)
    bundle = built(model, shapes={"x": (1, 3, 24, 24)})
    executable = provider.load(bundle, whole(bundle), npu)
    assert placed(executable).whole and set(placed(executable).nodes) == {QNN}
    expected = reference(model, {"x": image(1)})
    assert np.abs(executable.run({"x": image(1)})["y"] - expected).max() <= 1e-3 * np.ptp(expected)


def test_half_precision_is_within_a_hundredth(provider: Accelerator, npu: Processor, built: Built, tmp_path: Path) -> None:
    model = convnet(tmp_path / "h.onnx", dtype=np.float16)
    bundle, x = built(model), image(2).astype(np.float16)
    executable = provider.load(bundle, whole(bundle), npu)
    expected = reference(model, {"x": x}).astype(np.float32)
    assert placed(executable).whole
    assert np.abs(executable.run({"x": x})["y"].astype(np.float32) - expected).max() <= 1e-2 * np.ptp(expected)


def test_int8_runs_on_the_npu_but_for_its_ends(provider: Accelerator, npu: Processor, built: Built, tmp_path: Path) -> None:
    model = quantized(tmp_path / "q.onnx")
    bundle = built(model)
    executable = provider.load(bundle, whole(bundle), npu)
    fallen = placed(executable).fallback
    assert sorted(f.op for f in fallen) == ["DequantizeLinear", "QuantizeLinear"]
    assert {n for f in fallen for n in f.nodes if "token" not in n} == {"x_QuantizeLinear"}
    assert all(f.provider == CPU and ("graph input" in f.reason or "graph output" in f.reason) for f in fallen)
    assert placed(executable).nodes[QNN] > 4 and placed(executable).nodes[CPU] == 2
    x = image(3)
    off = np.abs(executable.run({"x": x})["y"] - reference(model, {"x": x})).max()
    assert off <= 2.01 * scale_of(model, "y")


def test_int8_without_its_ends_runs_wholly_on_the_npu(
    provider: Accelerator, npu: Processor, built: Built, tmp_path: Path
) -> None:
    model = quantized(tmp_path / "s.onnx", stripped=True)
    quantized(tmp_path / "with ends.onnx")
    bundle = built(model)
    executable = provider.load(bundle, whole(bundle), npu)
    assert placed(executable).whole and set(placed(executable).nodes) == {QNN}
    (given,), (made,) = bundle.manifest.inputs, bundle.manifest.outputs
    x = np.clip(np.round(image(4) / scale_of(tmp_path / "with ends.onnx", "x")) + 128, 0, 255).astype(np.uint8)
    off = executable.run({given.name: x})[made.name].astype(int) - reference(model, {given.name: x}).astype(int)
    assert np.abs(off).max() <= 2


def test_the_time_of_each_provider_is_known(provider: Accelerator, npu: Processor, built: Built, tmp_path: Path) -> None:
    """Of a model wholly taken without running it; of one with a node left, from the runtime's own trace."""
    for middle, providers in (("Relu", {QNN}), ("Erf", {QNN, CPU})):
        bundle = built(convnet(tmp_path / f"{middle}.onnx", middle=middle))
        executable = provider.load(bundle, whole(bundle), npu)
        assert isinstance(executable, Traceable)
        share = executable.time_share({"x": image(1)})
        assert share is not None and set(share) == providers and sum(share.values()) == pytest.approx(1)
        assert all(part > 0 for part in share.values())


def test_what_falls_back_is_named_with_the_reason_and_refused_in_strict_mode(
    provider: Accelerator, npu: Processor, built: Built, tmp_path: Path
) -> None:
    bundle = built(convnet(tmp_path / "e.onnx", middle="Erf"))
    placement = placed(provider.load(bundle, whole(bundle), npu))
    (fallen,) = placement.fallback
    assert (fallen.op, fallen.nodes, fallen.provider) == ("Erf", ("middle",), CPU)
    assert fallen.reason == "Operators of type `Erf` are not supported by QNN EP."
    with pytest.raises(DeviceError, match=r"strict, and 1 of \d+ nodes fell back from QNN.*Erf \(middle\).*not supported") as e:
        Strict(provider).load(bundle, whole(bundle), npu)
    assert e.value.exit_code == 4 and "\n" not in str(e.value)


def test_parts_with_free_dimensions_run_whole(provider: Accelerator, npu: Processor, built: Built) -> None:
    """The embedding model's batch is free, and behind the first cut nobody has named it."""
    bundle = built(model_file("embedding"), parts=3)
    x = {"input_1": np.random.default_rng(0).standard_normal((1, 76, 32, 1)).astype(np.float32)}
    tensors = dict(x)
    for s in (s for s in bundle.manifest.subgraphs if s.stop == s.start + 1):
        executable = provider.load(bundle, Step(s.name, s.start, s.stop, NPU, Latency.constant(1)), npu)
        assert placed(executable).whole and set(placed(executable).nodes) == {QNN}, s.name
        tensors |= executable.run(tensors)
    expected = reference(model_file("embedding"), x)
    assert np.abs(tensors["conv2d_19"] - expected).max() <= 1e-3 * np.ptp(expected)


def test_free_shapes_fall_back_with_that_reason(provider: Accelerator, kept: Path) -> None:
    """The reason is the shape, not the operator: it is why we fix shapes before we ask."""
    target = msgspec.structs.replace(provider._target(ROW.places[0], 0), static=False)
    verdict, _ = Cache(kept).get(model_file("embedding"), "the embedding", {}, target)
    assert verdict.placement is not None and set(verdict.placement.nodes) == {CPU}
    assert {f.reason for f in verdict.placement.fallback} == {"Cannot get shape"}


def test_what_the_backend_cannot_compile_is_a_device_error(kept: Path, npu: Processor, built: Built) -> None:
    """Without a chip the emulator takes this model's nodes and then fails to build them: no fallback, no crash here."""
    bundle = built(model_file("basic-pitch"))
    bare = Accelerator(ROW, {NPU: {"soc_model": "0"}}, kept)
    with pytest.raises(DeviceError, match="cannot be loaded on npu-qnn") as e:
        bare.load(bundle, whole(bundle), npu)
    assert "\n" not in str(e.value)


def test_a_compiled_model_is_kept_by_content_and_options(
    npu: Processor, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = built(convnet(tmp_path / "m.onnx"))
    cache = tmp_path / "cache"
    y = Accelerator(ROW, cache=cache).load(bundle, whole(bundle), npu).run({"x": image(1)})["y"]
    (place,) = (p for p in cache.iterdir() if p.is_dir())
    assert (place / "context.onnx").stat().st_size > 0
    children: list[object] = []
    run_child = compiled._run_child
    monkeypatch.setattr(compiled, "_run_child", lambda *a: (children.append(a), run_child(*a))[1])
    again = Accelerator(ROW, cache=cache).load(bundle, whole(bundle), npu)
    np.testing.assert_array_equal(again.run({"x": image(1)})["y"], y)
    assert not children and placed(again).whole
    Accelerator(ROW, {NPU: {"vtcm_mb": "2"}}, cache).load(bundle, whole(bundle), npu)
    assert len(children) == 1
