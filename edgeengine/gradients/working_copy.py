"""The working copy that is differentiated: weights inside, default domain at opset 20 or above, verified equal.

The model itself is never touched: inference keeps its own opset and nodes.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import numpy_helper, version_converter

from edgeengine.errors import UserError
from edgeengine.gradients.expand import expand, local_functions_inlined
from edgeengine.gradients.looking import Look, Sizes, look
from edgeengine.graph.dataflow import analyze
from edgeengine.graph.dtypes import FROM_ONNX
from edgeengine.graph.inline import inline, names_in
from edgeengine.graph.load import Model
from edgeengine.graph.samples import draw
from edgeengine.graph.session import create
from edgeengine.graph.tensors import copy_bytes, is_external, nbytes, tensors_in
from edgeengine.spec.tensor import TensorSpec

OPSET = 20
_LARGEST_BYTES = 1 << 30  # a protobuf holds less than 2 GiB, and the copy is made several times over
_ROUNDS = 8  # of branches and bodies within each other
_TOLERANCE = 1e-4  # of an output's range


def opset_of(proto: onnx.ModelProto) -> int:
    return next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 0)


def with_weights(model: Model) -> onnx.ModelProto:
    """The model's proto with every weight inside it, constants as initializers, nodes sorted."""
    flow = analyze(model)
    total = sum(nbytes(t) for t in tensors_in(model.proto.graph))
    if total > _LARGEST_BYTES:
        raise UserError(f"{model.path}: {total >> 20} MiB of weights; training graphs are made of models below 1 GiB")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    del proto.graph.node[:], proto.graph.initializer[:]
    proto.graph.node.extend(flow.nodes[i] for i in (*flow.constant_order, *flow.order))
    proto.graph.initializer.extend(_inside(model, t) for t in flow.initializers.values())
    return proto


def _inside(model: Model, tensor: onnx.TensorProto) -> onnx.TensorProto:
    if not is_external(tensor):
        return tensor
    data = io.BytesIO()
    copy_bytes(model.folder, tensor, data)
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=data.getvalue())


def convert(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """`proto` at opset 20, or at its own if that is higher. Raises UserError naming the node that cannot be converted."""
    if opset_of(proto) >= OPSET:
        return proto
    del proto.graph.value_info[:]
    proto.ir_version = max(proto.ir_version, 9)
    try:
        converted = version_converter.convert_version(proto, OPSET)
    except (RuntimeError, ValueError) as e:
        node = _first_unconvertible(proto)
        reason = str(e).splitlines()[0]
        raise UserError(
            f"{what}: node {node} cannot be converted from opset {opset_of(proto)} to {OPSET} ({reason}); export it at {OPSET}"
        ) from e
    converted.ir_version = max(converted.ir_version, 10)
    return converted


def _first_unconvertible(proto: onnx.ModelProto) -> str:
    """The first node after which the converter fails, by trying ever longer beginnings."""
    low, high = 0, len(proto.graph.node)
    while low < high:
        middle = (low + high) // 2
        part = onnx.ModelProto()
        part.CopyFrom(proto)
        del part.graph.node[middle + 1 :], part.graph.output[:]
        part.graph.output.extend(onnx.ValueInfoProto(name=o) for o in part.graph.node[-1].output[:1])
        try:
            version_converter.convert_version(part, OPSET)
            low = middle + 1
        except (RuntimeError, ValueError):
            high = middle
    node = proto.graph.node[min(low, len(proto.graph.node) - 1)]
    return f"{node.op_type} {node.name!r}"


def working_copy(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """Functions opened, converted, constants lifted. `what` names the model in messages."""
    refuse_training_forms(proto.graph, what)
    converted = convert(local_functions_inlined(proto, what), what)
    _lift_constants(converted.graph)
    return converted


def expanded(proto: onnx.ModelProto, sizes: Sizes, parameters: Collection[str]) -> Look:
    """Open decided branches and operators without a rule in place, and look at the result. What is inside takes more rounds."""
    seen = look(proto, sizes)
    for _ in range(_ROUNDS):
        if not open_decided(proto.graph, seen) and not expand(proto, seen, parameters):
            break
        _lift_constants(proto.graph)
        seen = look(proto, sizes)
    return seen


def open_decided(graph: onnx.GraphProto, seen: Look) -> bool:
    """Replace every If whose condition follows from shapes and constants by the branch it takes; whether there was one."""
    taken = {
        i: bool(seen.values[n.input[0]].reshape(-1)[0])
        for i, n in enumerate(graph.node)
        if n.op_type == "If" and n.input[0] in seen.values
    }
    if taken:
        inline(graph, taken, names_in(graph))
    return bool(taken)


def refuse_training_forms(graph: onnx.GraphProto, what: str) -> None:
    """An inference model holds neither statistics of the batch nor random zeros. Raises UserError naming the node."""
    held = {t.name: t for t in graph.initializer}
    for node in graph.node:
        mode = next((a.i for a in node.attribute if a.name == "training_mode"), 0)
        if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] in held:
            mode = int(numpy_helper.to_array(held[node.input[2]]).reshape(-1)[0])
        if mode:
            raise UserError(f"{what}: node {node.op_type} {node.name!r} is in training form; export the model for inference")


def verify_equal(original: onnx.ModelProto, copy: onnx.ModelProto, sizes: Sizes, what: str) -> float:
    """The largest difference between the outputs of both, over the output's range. Raises UserError above 1e-4."""
    specs = [TensorSpec(i.name, FROM_ONNX[i.type.tensor_type.elem_type], ()) for i in original.graph.input]
    names = [o.name for o in original.graph.output]
    feeds = draw(specs, sizes.once, sizes.values, run=1)
    runs = [create(p.SerializeToString(), optimized=False).run(names, feeds) for p in (original, copy)]
    worst = 0.0
    for name, a, b in zip(names, *(map(np.asarray, r) for r in runs), strict=True):
        if a.dtype.kind != "f":
            continue
        finite = np.isfinite(a)
        scale = float(np.max(np.abs(a[finite]), initial=0.0)) or 1.0
        same = bool(np.array_equal(a[~finite], b[~finite], equal_nan=True))
        difference = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0)) / scale if same else np.inf
        if not difference <= _TOLERANCE:
            raise UserError(
                f"{what}: the working copy's output {name!r} differs by {difference:.2g} of its range; export it at opset {OPSET}"
            )
        worst = max(worst, difference)
    return worst


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Constant nodes become initializers: their values are then known to the rules."""
    kept: list[onnx.NodeProto] = []
    for node in graph.node:
        value = _constant(node)
        if value is None:
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
        else:
            graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)


def _constant(node: onnx.NodeProto) -> np.ndarray | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    attribute = node.attribute[0]
    readers: Mapping[str, object] = {
        "value": lambda: numpy_helper.to_array(attribute.t),
        "value_float": lambda: np.array(attribute.f, np.float32),
        "value_floats": lambda: np.array(attribute.floats, np.float32),
        "value_int": lambda: np.array(attribute.i, np.int64),
        "value_ints": lambda: np.array(attribute.ints, np.int64),
    }
    read = readers.get(attribute.name)
    return read() if callable(read) else None
