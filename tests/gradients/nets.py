"""Small networks as ONNX, made here, for tests that need no torch."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def two_moons(count: int, seed: int = 0, noise: float = 0.08) -> tuple[np.ndarray, np.ndarray]:
    """Points [count, 2] on two interleaved half circles, and which of them: classes 0 and 1."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    angle = rng.uniform(0, np.pi, count)
    points = np.stack([np.cos(angle), np.sin(angle)], 1) * np.where(label, -1, 1)[:, None] + np.where(
        label[:, None], [1.0, 0.5], 0.0
    )
    return (points + rng.normal(0, noise, (count, 2))).astype(np.float32), label.astype(np.int64)


def mlp(seed: int = 0, width: int = 32, softmax: bool = True, opset: int = 20) -> onnx.ModelProto:
    """x [batch, 2] -> Gelu and LayerNormalization -> 2 classes."""
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)

    def filled(name: str, value: float, size: int) -> TensorProto:
        return numpy_helper.from_array(np.full(size, value, np.float32), name)

    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h1"], name="first"),
        helper.make_node("Gelu", ["h1"], ["g1"], name="gelu"),
        helper.make_node("LayerNormalization", ["g1", "scale", "shift"], ["n1"], name="norm"),
        helper.make_node("Gemm", ["n1", "w2", "b2"], ["h2"], name="second"),
        helper.make_node("Gelu", ["h2"], ["g2"], name="gelu2"),
        helper.make_node("Gemm", ["g2", "w3", "b3"], ["logits" if softmax else "y"], name="head"),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["y"], name="softmax"))
    weights = [
        weight("w1", 2, width),
        filled("b1", 0, width),
        filled("scale", 1, width),
        filled("shift", 0, width),
        weight("w2", width, width),
    ]
    weights += [filled("b2", 0, width), weight("w3", width, 2), filled("b3", 0, 2)]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
