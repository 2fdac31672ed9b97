"""The NPU emulator and models for it; tests that need it skip, with the reason, where it is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from edgeengine.bundle import Bundle
from edgeengine.spec import Latency, Step

NPU = "npu-qnn"
QNN, CPU = "QNNExecutionProvider", "CPUExecutionProvider"
needs_emulator = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime_qnn") is None, reason="onnxruntime-qnn is not installed: pip install '.[npu-emulator]'"
)
SHAPE = (1, 3, 24, 24)


def convnet(file: Path, middle: str = "Relu", batch: int | str = 1, dtype: type[np.floating] = np.float32) -> Path:
    """conv, `middle`, conv, relu, over 250,000 multiply-accumulates each side; weights are seeded."""
    rng = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) * 0.15).astype(dtype), n)
        for n, s in (("w1", (16, 3, 3, 3)), ("w2", (16, 16, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node(middle, ["c1"], ["m"], name="middle"),
        helper.make_node("Conv", ["m", "w2"], ["c2"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["y"], name="last"),
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [helper.make_tensor_value_info(n, kind, [batch, c, 24, 24]) for n, c in (("x", 3), ("y", 16))]
    graph = helper.make_graph(nodes, "convnet", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self) -> None:
        self._left = iter([{"x": image(i)} for i in range(8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def quantized(file: Path, stripped: bool = False) -> Path:
    """The convnet in QDQ int8; `stripped` of the quantizer at its input and the dequantizer at its output."""
    source = convnet(file.with_suffix(".float.onnx"))
    quantize_static(source, file, _Samples(), activation_type=QuantType.QUInt8, weight_type=QuantType.QUInt8)
    if stripped:
        proto = onnx.load(file)
        graph = proto.graph
        first = next(n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "x")
        last = next(n for n in graph.node if n.op_type == "DequantizeLinear" and n.output[0] == "y")
        new_in, new_out = (
            helper.make_tensor_value_info(t, TensorProto.UINT8, [1, c, 24, 24])
            for t, c in ((first.output[0], 3), (last.input[0], 16))
        )
        for node in (first, last):
            graph.node.remove(node)
        graph.input[0].CopyFrom(new_in)
        graph.output[0].CopyFrom(new_out)
        onnx.save(proto, file)
    return file


def scale_of(file: Path, tensor: str) -> float:
    """The quantization step of the tensor that is quantized to or dequantized from `tensor`."""
    graph = onnx.load(file).graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    node = next(
        n for n in graph.node if tensor in (n.input[0], n.output[0]) and n.op_type in ("QuantizeLinear", "DequantizeLinear")
    )
    return float(constants[node.input[1]])


def whole(bundle: Bundle, processor: str = NPU) -> Step:
    s = bundle.manifest.whole
    return Step(s.name, s.start, s.stop, processor, Latency.constant(1))
