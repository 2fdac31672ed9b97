"""Replace operators without a gradient rule by what they consist of: their bodies in the ONNX standard, or steps.

Only those on a path from a parameter to the loss; the others stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import onnx
from onnx import defs, helper, inliner

from edgeengine.errors import UserError
from edgeengine.gradients.differentiate import paths
from edgeengine.gradients.looking import Look
from edgeengine.gradients.recurrent import unrolled
from edgeengine.gradients.rules import CONSTANT_ALMOST_EVERYWHERE, RULES, Node
from edgeengine.gradients.tape import Tape, Tensor
from edgeengine.graph.dtypes import TO_ONNX

_BODIES = "edgeengine.bodies"
_RECURRENT = ("LSTM", "GRU", "RNN")


def expand(proto: onnx.ModelProto, seen: Look, parameters: Collection[str]) -> bool:
    """Rewrite `proto` in place; whether anything was. A body may hold more to expand."""
    opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
    live = paths(proto.graph, seen, parameters)
    on_path = [n for n in proto.graph.node if any(t in live for t in n.input) and any(o in live for o in n.output)]
    todo = [n for n in on_path if n.domain in ("", "ai.onnx") and n.op_type not in RULES.keys() | CONSTANT_ALMOST_EVERYWHERE]
    recurrent = [n for n in todo if n.op_type in _RECURRENT]
    bodies = [n for n in todo if n.op_type not in _RECURRENT and _has_body(n, opset)]
    if recurrent:
        _unroll(proto, recurrent, seen, opset, live)
    for i, node in enumerate(bodies):
        _call(proto, node, f"{node.op_type}_{i}", seen, opset)
    if bodies:
        proto.CopyFrom(inliner.inline_local_functions(proto))
        kept = [o for o in proto.opset_import if o.domain != _BODIES]
        del proto.opset_import[:]
        proto.opset_import.extend(kept)
    return bool(recurrent or bodies)


def _has_body(node: onnx.NodeProto, opset: int) -> bool:
    schema: Any = defs.get_schema(node.op_type, opset)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _call(proto: onnx.ModelProto, node: onnx.NodeProto, name: str, seen: Look, opset: int) -> None:
    """Make `node` a call of a local function that is its operator's body."""
    schema: Any = defs.get_schema(node.op_type, opset)
    given = {a.name for a in node.attribute}
    # A body refers to attributes; those the node leaves out have their defaults.
    node.attribute.extend(
        a.default_value for a in schema.attributes.values() if a.name not in given and a.default_value.type != 0
    )
    if schema.has_context_dependent_function:
        types = [_type(t, seen) for t in node.input]
        version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        raw = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        body = onnx.FunctionProto.FromString(raw)
    else:
        version = max(v for v in schema.function_opset_versions if v <= opset)
        body = onnx.FunctionProto.FromString(schema.get_function_with_opset_version(version))
    body.name, body.domain = name, _BODIES
    del body.opset_import[:]
    body.opset_import.append(helper.make_opsetid("", opset))
    node.op_type, node.domain = name, _BODIES
    if not any(o.domain == _BODIES for o in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(_BODIES, 1))
    proto.functions.append(body)


def _type(name: str, seen: Look) -> bytes:
    if not name:
        return bytes(onnx.TypeProto().SerializeToString())
    kind = helper.make_tensor_type_proto(TO_ONNX[seen.dtypes[name]], list(seen.dims[name]))
    return bytes(kind.SerializeToString())


def _unroll(proto: onnx.ModelProto, recurrent: list[onnx.NodeProto], seen: Look, opset: int, live: set[str]) -> None:
    graph = proto.graph
    chosen = {id(n) for n in recurrent}
    nodes: list[onnx.NodeProto] = []
    tapes: list[Tape] = []
    for node in graph.node:
        if id(node) not in chosen:
            nodes.append(node)
            continue
        tape = Tape(f"steps{len(tapes)}/", opset)
        tapes.append(tape)
        x = tuple(Tensor(tape, t, seen.dtypes[t], seen.dims[t]) if t else None for t in node.input)
        results = unrolled(Node(node, tape, x, (), tuple(t in live for t in node.input), (), (), {}))
        nodes.extend(tape.nodes)
        nodes.extend(helper.make_node("Identity", [r.name], [name], name=f"{name}/named") for name, r in results.items())
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    for tape in tapes:
        graph.initializer.extend(tape.constants.values())


def local_functions_inlined(proto: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """`proto` with the bodies of its own functions in their places. Raises UserError where the bodies do not fit."""
    if not proto.functions:
        return proto
    try:
        return inliner.inline_local_functions(proto, convert_version=True)
    except (RuntimeError, ValueError) as e:
        raise UserError(f"{what}: its functions cannot be opened ({str(e).splitlines()[0]}); export it without functions") from e
