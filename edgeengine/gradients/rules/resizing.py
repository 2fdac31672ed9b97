"""Resize: linear in its input and separable by axis, so its gradient is a product with one matrix per resized axis.

The matrix is what ONNX Runtime itself makes of the unit vectors: every mode and coordinate transformation is exact.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgeengine.gradients.rules.shapes import along
from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.graph.session import create


@rule("Resize")
def _(n: Node) -> Grads:
    x, y, grad = n.input(0), n.output(), n.dy
    if n.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise n.refuse("with crops")
    for axis in range(x.rank):
        if x.shape[axis] == y.shape[axis]:
            continue
        size, out = n.sizes(x, [axis])[0], n.sizes(y, [axis])[0]
        if n.attr("mode", "nearest") == "nearest" and out % size == 0 and _repeats(n, axis, size, out):
            parts = [*grad.shape[:axis], size, out // size, *grad.shape[axis + 1 :]]
            grad = grad.reshape(parts).sum([axis + 1], keep=False)
            grad = grad.told((*parts[:axis], size, *parts[axis + 2 :]))
        else:
            grad = along(grad, n.tape.constant(_matrix(n, axis, size, out).T.astype(x.dtype)), axis)
    return [grad, *[None] * (len(n.x) - 1)]


def _repeats(n: Node, axis: int, size: int, out: int) -> bool:
    return bool(np.array_equal(_matrix(n, axis, size, out), np.repeat(np.eye(size), out // size, axis=1)))


def _matrix(n: Node, axis: int, size: int, out: int) -> np.ndarray:
    """[size, out]: row i is unit vector i resized as the node resizes `axis`."""
    ours = [a for a in n.proto.attribute if a.name not in ("axes", "keep_aspect_ratio_policy")]
    attributes = {a.name: helper.get_attribute_value(a) for a in ours}
    scales = n.value(2)
    given = n.attr("axes")
    at = axis if given is None else [a % n.input(0).rank for a in given].index(axis)
    by_scale = scales is not None and scales.size
    factor = float(scales[at]) if by_scale and scales is not None else 1.0
    how = np.array([1, 1, 1, factor], np.float32) if by_scale else np.array([1, 1, size, out], np.int64)
    inputs = ["x", "", "how"] if by_scale else ["x", "", "", "how"]
    node = helper.make_node("Resize", inputs, ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, size, size])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(how, "how")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", n.tape.opset)], ir_version=10)
    unit = np.eye(size, dtype=np.float32)[None, None]
    resized: np.ndarray = create(model.SerializeToString(), optimized=False).run(None, {"x": unit})[0]
    return np.asarray(resized[0, 0])
