"""What a processor leaves of a graph by its table of operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from edgeengine.graph.fallback import islands
from edgeengine.spec.features import Features
from tests.graph.onnxes import model, node, weight, x_in


def file_of(tmp_path: Path) -> Path:
    """x [4, 8] -> Relu -> MatMul [8, 8] -> Celu -> Celu -> Relu -> Celu; and a Shape, which is worked out beforehand."""
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("Shape", ["a"], ["shape"], name="shape"),
        node("MatMul", ["a", "w"], ["b"], name="product"),
        node("Celu", ["b"], ["c"], name="celu0"),
        node("Celu", ["c"], ["d"], name="celu1"),
        node("Relu", ["d"], ["e"], name="again"),
        node("Reshape", ["e", "shape"], ["f"], name="reshape"),
        node("Celu", ["f"], ["y"], name="celu2"),
    ]
    made = model(nodes, [x_in(4, 8)], ["y"], [weight("w", np.ones((8, 8)))])
    onnx.save(onnx.shape_inference.infer_shapes(made), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_nodes_that_follow_one_another_fall_back_together(tmp_path: Path) -> None:
    first, second = islands(file_of(tmp_path), frozenset({"Relu", "MatMul", "Reshape"}))
    assert first.operators == {"Celu": ("celu0", "celu1")} and second.operators == {"Celu": ("celu2",)}
    assert first.features == Features(read=64, written=64, activations=2) and first.read_bytes == 4 * 8 * 4


def test_products_on_the_way_count(tmp_path: Path) -> None:
    (island,) = islands(file_of(tmp_path), frozenset({"Relu", "Celu", "Reshape"}))
    assert island.operators == {"MatMul": ("product",)}
    assert (island.features.macs, island.read_bytes, island.written_bytes) == (4 * 8 * 8, 128, 128)


def test_what_is_taken_whole_leaves_nothing_and_shapes_are_nobodys(tmp_path: Path) -> None:
    assert islands(file_of(tmp_path), frozenset({"Relu", "MatMul", "Celu", "Reshape"})) == []
