"""Loading: every bad file is one clear line, weights stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from edgeengine.errors import UserError
from edgeengine.graph import load_model
from edgeengine.graph.dataflow import analyze
from tests.graph.onnxes import FLOAT, model, node, weight, x_in

Save = Callable[..., Path]


def external_model(location: str, offset: str = "0", length: str = "64") -> onnx.ModelProto:
    tensor = TensorProto(name="W", data_type=FLOAT, dims=[4, 4], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=text)
    return model([node("MatMul", ["x", "W"], ["y"])], [x_in("N", 4)], ["y"], [tensor])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00garbage" * 9, "is not an ONNX model"),
        (b"PK\x03\x04 rest", "a zip archive, probably a PyTorch checkpoint"),
        (b"\x1c\x00\x00\x00TFL3 rest", "a TensorFlow Lite model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"\x08\x08", "holds no graph"),
    ],
)
def test_what_is_no_onnx_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        load_model(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        load_model(tmp_path / "absent.onnx")
    with pytest.raises(UserError, match="is a folder"):
        load_model(tmp_path)


def test_truncation_anywhere_is_noticed(saved: Save) -> None:
    path = saved(model([node("Add", ["x", "W"], ["y"])], [x_in("N", 4)], ["y"], [weight("W", [1, 2, 3, 4])]))
    whole = path.read_bytes()
    for length in range(1, len(whole) - 1, 3):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"truncated|holds no graph|no output|names no opset"):
            load_model(path)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "", "..\\w.bin"])
def test_external_data_outside_the_folder(saved: Save, location: str) -> None:
    with pytest.raises(UserError, match="outside the model's folder"):
        load_model(saved(external_model(location)))


def test_external_data_missing_or_short(saved: Save, tmp_path: Path) -> None:
    path = saved(external_model("w.bin", offset="8"))
    with pytest.raises(UserError, match=r"weight 'W' is in 'w.bin', which is missing"):
        load_model(path)
    (tmp_path / "w.bin").write_bytes(b"\0" * 71)
    with pytest.raises(UserError, match=r"needs bytes 8 to 72 of 'w.bin', which has 71"):
        load_model(path)
    (tmp_path / "w.bin").write_bytes(b"\0" * 72)
    loaded = load_model(path)
    assert loaded.external == ("w.bin",) and not loaded.proto.graph.initializer[0].raw_data
    with pytest.raises(UserError, match="no number"):
        load_model(saved(external_model("w.bin", offset="x")))


def test_the_hash_covers_external_data(saved: Save, tmp_path: Path) -> None:
    path = saved(external_model("w.bin"))
    (tmp_path / "w.bin").write_bytes(b"\0" * 64)
    first = load_model(path).sha256
    (tmp_path / "w.bin").write_bytes(b"\1" * 64)
    assert load_model(path).sha256 != first


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Add", ["x", "ghost"], ["y"])], "reads 'ghost', which nothing makes"),
        ([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])], "'y' is made by two nodes"),
        ([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["y"])], "form a cycle"),
        ([node("Neg", ["x"], ["other"])], "output 'y' is made by no node"),
    ],
)
def test_graphs_that_make_no_sense(saved: Save, nodes: list[onnx.NodeProto], message: str) -> None:
    with pytest.raises(UserError, match=message):
        analyze(load_model(saved(model(nodes, [x_in("N", 4)], ["y"]))))


def test_an_unsorted_file_is_sorted(saved: Save) -> None:
    nodes = [
        node("Neg", ["b"], ["y"]),
        node("Relu", ["a"], ["b"]),
        node("Exp", ["x"], ["a"]),
        node("Exp", ["x"], ["dead"]),
    ]
    assert analyze(load_model(saved(model(nodes, [x_in("N", 4)], ["y"])))).order == (2, 1, 0)
