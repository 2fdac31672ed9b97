"""The last layer of a model as one that can be solved for: y = x W + b on features x, found by the shape of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx
from onnx import helper


@dataclass(frozen=True)
class Head:
    """`features` is the tensor x, [batch, width]; `weight` is [width, classes], or [classes, width] where `transposed`."""

    features: str
    weight: str
    bias: str
    transposed: bool


def find_head(graph: onnx.GraphProto, prediction: str, own: Mapping[str, onnx.TensorProto]) -> Head | None:
    """The linear layer that makes `prediction`: Gemm, or MatMul and Add, of a weight and a bias that nothing else reads.

    None where the last layer is of another kind: then it can only be trained by gradients.
    """
    makers = {o: n for n in graph.node for o in n.output}
    node = makers.get(prediction)
    found = None
    if node is not None and node.op_type == "Gemm":
        found = _of_gemm(node)
    elif node is not None and node.op_type == "Add":
        found = _of_sum(node, makers)
    if found is None or not _fits(found, own):
        return None
    readers = [t for n in graph.node for t in n.input]
    return found if readers.count(found.weight) == readers.count(found.bias) == 1 else None


def _of_gemm(node: onnx.NodeProto) -> Head | None:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0 and not attributes.get("transA", 0)
    if not plain or len(node.input) < 3:
        return None
    return Head(node.input[0], node.input[1], node.input[2], bool(attributes.get("transB", 0)))


def _of_sum(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> Head | None:
    for product, bias in (tuple(node.input), tuple(reversed(node.input))):
        maker = makers.get(product)
        if maker is not None and maker.op_type == "MatMul":
            return Head(maker.input[0], maker.input[1], bias, False)
    return None


def _fits(head: Head, own: Mapping[str, onnx.TensorProto]) -> bool:
    weight, bias = own.get(head.weight), own.get(head.bias)
    if weight is None or bias is None or len(weight.dims) != 2:
        return False
    classes = weight.dims[0] if head.transposed else weight.dims[1]
    return tuple(bias.dims) in ((classes,), (1, classes))
