"""What no model that we write may hold: nodes in training form, layouts of one machine, what ONNX Runtime refuses to load."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from edgeengine.errors import UserError
from edgeengine.graph.tensors import bodies_of_attribute, is_external

OPSETS = range(13, 27)
"""Scales per channel came with opset 13; ONNX Runtime 1.31 promises up to 26."""
MAX_IR = 13
"""The newest IR version ONNX Runtime 1.31 loads."""


def check_graph(proto: onnx.ModelProto, where: str) -> None:
    """Raise UserError, naming the nodes, for training-form nodes and for layouts that only one kind of processor has."""
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    constants = {t.name: t for t in proto.graph.initializer}
    constants |= {n.output[0]: a.t for n in nodes_of(proto) if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    training, native = [], []
    for node in nodes_of(proto):
        label = f"{node.name or node.output[0]} ({node.op_type})"
        if _trains(node, opset, constants):
            training.append(label)
        if node.domain == "com.microsoft.nchwc":
            native.append(label)
    if training:
        raise UserError(
            f"{where}: {_some(training)} in training form: it uses the statistics of each batch, or drops values at random; "
            f"export the model in inference mode (module.eval())"
        )
    if native:
        raise UserError(
            f"{where}: was optimized for one kind of processor ({_some(native)}); convert the model it was made from, or save "
            f"it at ONNX Runtime's basic level"
        )


def check_loadable(proto: onnx.ModelProto, where: str) -> None:
    """Raise UserError when the model is not valid, or newer than what ONNX Runtime loads."""
    opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS or proto.ir_version > MAX_IR:
        raise UserError(
            f"{where}: opset {opset} with IR version {proto.ir_version}; ONNX Runtime wants opset {OPSETS.start} to "
            f"{OPSETS.stop - 1} and IR at most {MAX_IR}, give --opset"
        )
    names = [n.name for n in proto.graph.node if n.name]
    if len(set(names)) != len(names):
        raise UserError(f"{where}: node names repeat, which ONNX Runtime refuses; export the model again")
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as e:
        reason = str(e).strip().splitlines()[0]
        raise UserError(f"{where}: not a valid model ({reason}); export it again with another version of its tools") from e


def nodes_of(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node at any depth, those of functions included."""
    yield from _nodes(proto.graph.node)
    for function in proto.functions:
        yield from _nodes(function.node)


def _nodes(nodes: object) -> Iterator[onnx.NodeProto]:
    for node in nodes:  # type: ignore[attr-defined]
        yield node
        for attribute in node.attribute:
            for body in bodies_of_attribute(attribute):
                yield from _nodes(body.node)


def _trains(node: onnx.NodeProto, opset: int, constants: dict[str, onnx.TensorProto]) -> bool:
    """BatchNormalization: training_mode since opset 14, five outputs before, is_test = 0 until 6. Dropout: a third input
    since 12, is_test = 0 until 6. (The operators' specifications, onnx.ai/onnx/operators.)"""
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("BatchNormalization", "Dropout"):
        return False
    flags = {a.name: a.i for a in node.attribute}
    if opset < 7:
        return not flags.get("is_test", 0)
    if node.op_type == "BatchNormalization":
        return bool(flags.get("training_mode", 0)) or (opset < 14 and sum(map(bool, node.output)) > 1)
    if opset < 12 or len(node.input) < 3 or not node.input[2]:
        return False
    given = constants.get(node.input[2])
    return given is None or is_external(given) or bool(np.any(numpy_helper.to_array(given)))


def _some(labels: list[str]) -> str:
    return ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
