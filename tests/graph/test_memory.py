"""Weights stay on disk: what splitting and its child keep in memory does not grow with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from edgeengine.graph import build_bundle, load_model, wire
from edgeengine.graph.resident import dropping
from edgeengine.graph.source import open_source
from edgeengine.graph.tensors import external_slice, is_external
from tests.graph.onnxes import FLOAT, model, node, run_chain, run_source, weight, x_in

Save = Callable[..., Path]
rng = np.random.default_rng(11)


def stack(count: int, width: int, external: bool = False) -> onnx.ModelProto:
    """`count` products of width x width matrices, weights inside the file or all zero in w.bin."""
    nodes, weights, current = [], [], "x"
    for i in range(count):
        nodes += [node("MatMul", [current, f"w{i}"], [f"h{i}"]), node("Tanh", [f"h{i}"], [f"t{i}"])]
        current = f"t{i}"
        if external:
            tensor = TensorProto(name=f"w{i}", data_type=FLOAT, dims=[width] * 2, data_location=TensorProto.EXTERNAL)
            size = width * width * 4
            for key, text in (("location", "w.bin"), ("offset", str(i * size)), ("length", str(size))):
                tensor.external_data.add(key=key, value=text)
            weights.append(tensor)
        else:
            weights.append(weight(f"w{i}", rng.standard_normal((width, width)) / np.sqrt(width)))
    return model(nodes, [x_in("N", width)], [current], weights)


def test_large_initializers_are_left_in_the_file(saved: Save) -> None:
    path = saved(stack(2, 160))
    loaded = load_model(path)
    raw, original = path.read_bytes(), onnx.load(path)
    for slim, full in zip(loaded.proto.graph.initializer, original.graph.initializer, strict=True):
        location, offset, length = external_slice(slim)
        assert (is_external(slim), location, slim.name, list(slim.dims)) == (True, path.name, full.name, list(full.dims))
        assert raw[offset : offset + length] == full.raw_data
    assert loaded.external == () and loaded.proto.ByteSize() < 1000


def test_what_is_not_large_or_not_raw_is_read_as_it_is(saved: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    source = stack(2, 16)
    source.graph.initializer.append(onnx.helper.make_tensor("floats", FLOAT, [20000], np.zeros(20000)))
    assert load_model(saved(source)).proto == source
    # With everything large, what is left is the same model in other words.
    monkeypatch.setattr(wire, "LARGE_BYTES", 1)
    slim = load_model(saved(source)).proto
    assert [is_external(t) for t in slim.graph.initializer] == [True, True, False]
    assert list(slim.graph.node) == list(source.graph.node) and slim.opset_import == source.opset_import


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("limit", [1 << 30, 0])
def test_weights_put_back_or_laid_aside_are_the_models_own(saved: Save, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """A few megabytes go back into the message, more into a file of their own; both runs are the source's."""
    monkeypatch.setattr("edgeengine.graph.source._INLINE_BYTES", limit)
    path = saved(stack(3, 160))
    x = rng.standard_normal((1, 160)).astype(np.float32)
    expected = run_source(path, {"x": x})
    with open_source(path) as source:
        names = [o.name for o in source.proto.graph.output]
        np.testing.assert_array_equal(source.session().run(names, {"x": x})[0], expected[names[0]])
    bundle = build_bundle(path, path.with_suffix(".edge"), parts=3)
    np.testing.assert_array_equal(run_chain(bundle, {"x": x})[names[0]], expected[names[0]])


@pytest.mark.usefixtures("in_process")
def test_a_lean_verification_with_dropped_pages_says_the_same(saved: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeengine.graph.source.LEAN_BYTES", 0)
    monkeypatch.setattr("edgeengine.graph.source._DROPPED_BYTES", 0)
    monkeypatch.setattr("edgeengine.graph.source._INLINE_BYTES", 0)
    monkeypatch.setattr("edgeengine.graph.resident._ALLOWED_BYTES", 0)
    path = saved(stack(4, 160))
    assert build_bundle(path, path.with_suffix(".edge"), parts=4).manifest.exactness.bit_equal_unoptimized


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are dropped on Linux only")
def test_dropped_pages_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeengine.graph.resident._ALLOWED_BYTES", 0)
    file = tmp_path / "w.bin"
    values = rng.standard_normal(1 << 18).astype(np.float32)
    file.write_bytes(values.tobytes())
    mapped = np.memmap(file, np.float32, "r")
    with dropping([file]):
        for _ in range(20):
            np.testing.assert_array_equal(mapped, values)


_BUILD = """
import resource, sys
from edgeengine.graph import build_bundle
build_bundle(sys.argv[1], sys.argv[2], parts=3)
# A fork starts with its parent's ru_maxrss; VmHWM starts anew with the program.
own = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peaks(path: Path) -> tuple[float, float]:
    """(MB of a process that builds, MB of its child)."""
    done = subprocess.run([sys.executable, "-c", _BUILD, path, path.with_suffix(".edge")], capture_output=True, check=True)
    own, child = (int(kb) / 1024 for kb in done.stdout.split())
    return own, child


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peaks_do_not_grow_with_the_weights(tmp_path: Path) -> None:
    """100 MB inside the file, and 400 MB beside it of which no more than a share may be resident at a time."""
    inside = tmp_path / "inside.onnx"
    tensor = numpy_helper.from_array(np.zeros((2048, 2048), np.float32), "")
    proto = stack(6, 2048, external=True)
    for t in proto.graph.initializer:
        t.ClearField("external_data")
        t.ClearField("data_location")
        t.raw_data = tensor.raw_data
    inside.write_bytes(proto.SerializeToString())
    own, child = peaks(inside)
    assert own < 250 and child < 350, (own, child)
    beside = tmp_path / "beside.onnx"
    beside.write_bytes(stack(24, 2048, external=True).SerializeToString())
    with (tmp_path / "w.bin").open("wb") as data:
        data.truncate(24 * 2048 * 2048 * 4)
    own, child = peaks(beside)
    assert own < 250 and child < 420, (own, child)
