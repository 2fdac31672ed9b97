"""Reverse-mode differentiation of an ONNX graph: from a loss back to the parameters, emitting plain ONNX.

The tape holds the forward nodes, then the backward ones; what no asked-for output needs is dropped. Only nodes on a path
from a parameter to the loss need a rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from edgeengine.errors import NotSupported, UserError
from edgeengine.gradients.looking import Look
from edgeengine.gradients.rules import CONSTANT_ALMOST_EVERYWHERE, RULES, Node
from edgeengine.gradients.tape import Tape, Tensor
from edgeengine.graph.dataflow import reads_of

FLOATS = ("float32", "float64", "float16")


@dataclass(frozen=True)
class Choice:
    """A node, which of its inputs get gradients, and the formulations its rule has, by name of the choice."""

    node: onnx.NodeProto
    wants: tuple[bool, ...]
    formulations: dict[str, tuple[str, ...]]


@dataclass
class Backward:
    """A differentiated graph. `gradients` maps each parameter to its gradient, absent where the loss does not depend on it.

    `statistics` maps running statistics to their new values; `path` counts the operators that gradients pass through;
    `choices` are the nodes on it whose rules have several formulations.
    """

    tape: Tape
    gradients: dict[str, Tensor]
    statistics: dict[str, Tensor] = field(default_factory=dict)
    path: dict[str, int] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)


def differentiate(
    graph: onnx.GraphProto,
    opset: int,
    seen: Look,
    loss: str,
    parameters: Collection[str],
    forms: Mapping[str, str] | None = None,
) -> Backward:
    """Differentiate the scalar `loss` with respect to `parameters` (tensors of `graph` that no node makes).

    `graph` is topologically sorted and in the default domain; `seen` knows its tensors. `forms` chooses formulations (see
    the rules). Raises NotSupported for an operator on the path without a rule, and UserError where a rule needs a size
    that varies.
    """
    tape = Tape("grad/", opset)
    constants = {t.name: t for t in graph.initializer}
    makers = {o: n for n in graph.node for o in n.output if o}
    live = paths(graph, seen, parameters)
    needed = _ancestors(graph, loss)
    nodes: list[Node] = []
    for proto in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(proto)
        wants = tuple(t in live for t in proto.input)
        on_path = any(wants) and any(o in live and o in needed for o in proto.output)
        trains = proto.op_type == "BatchNormalization" and _attribute(proto, "training_mode")
        if not on_path and not trains:
            tape.nodes.append(copy)
            continue
        rule = RULES.get(proto.op_type) if proto.domain in ("", "ai.onnx") else None
        if rule is None:
            raise _without_rule(graph, proto, opset, parameters, live)
        node = Node(
            proto=copy,
            tape=tape,
            x=tuple(_tensor(tape, seen, t) for t in proto.input),
            y=tuple(_tensor(tape, seen, t) for t in proto.output),
            wants=wants,
            values=tuple(_value(seen, constants, t, parameters) for t in proto.input),
            made_by=tuple(makers[t].op_type if t in makers else "" for t in proto.input),
            forms=forms or {},
        )
        if rule.forward is not None:
            rule.forward(node)
        else:
            tape.nodes.append(copy)
        nodes.append(node)
    result = Backward(tape, {})
    _walk_back(nodes, seen, tape, loss, live, parameters, result)
    return result


def paths(graph: onnx.GraphProto, seen: Look, parameters: Collection[str]) -> set[str]:
    """The tensors through which a parameter's influence passes: floating point, not constant almost everywhere."""
    live = set(parameters)
    for node in graph.node:
        if node.op_type in CONSTANT_ALMOST_EVERYWHERE or not any(t in live for t in reads_of(node)):
            continue
        live.update(o for o in node.output if o and (seen.dtypes.get(o) in FLOATS or node.op_type == "QuantizeLinear"))
    return live


def _walk_back(
    nodes: Sequence[Node], seen: Look, tape: Tape, loss: str, live: set[str], parameters: Collection[str], result: Backward
) -> None:
    grads: dict[str, Tensor] = {}
    total = _tensor(tape, seen, loss)
    if total is None or any(d != 1 for d in total.shape):
        raise UserError(f"{loss!r} is not a scalar, so it cannot be a loss")
    grads[loss] = tape.constant(np.ones(total.shape, total.dtype))  # type: ignore[arg-type]
    for node in reversed(nodes):
        if "running_mean" in node.saved:
            result.statistics[node.input(3).name] = node.saved["running_mean"]
            result.statistics[node.input(4).name] = node.saved["running_variance"]
        node.dys = tuple(grads.get(y.name) if y is not None else None for y in node.y)
        if all(dy is None for dy in node.dys):
            continue
        result.path[node.op] = result.path.get(node.op, 0) + 1
        backward = RULES[node.op].backward(node)
        if node.choices:
            result.choices.append(Choice(node.source, node.wants, node.choices))
        for x, grad, wanted in zip(node.x, backward, node.wants, strict=False):
            if x is None or grad is None or not wanted:
                continue
            grad = grad.told(x.known)
            grads[x.name] = grads[x.name] + grad if x.name in grads else grad
    result.gradients.update({p: grads[p] for p in parameters if p in grads})


def pruned(nodes: Iterable[onnx.NodeProto], wanted: Iterable[str]) -> list[onnx.NodeProto]:
    """Those nodes that the tensors `wanted` depend on."""
    needed, kept = set(wanted), []
    for node in reversed(list(nodes)):
        if any(o in needed for o in node.output):
            kept.append(node)
            needed.update(reads_of(node))
    return kept[::-1]


def _ancestors(graph: onnx.GraphProto, loss: str) -> set[str]:
    """The tensors that `loss` depends on, itself included."""
    return {loss} | {t for node in pruned(graph.node, [loss]) for t in (*reads_of(node), *node.output)}


def _without_rule(
    graph: onnx.GraphProto, node: onnx.NodeProto, opset: int, parameters: Collection[str], live: set[str]
) -> NotSupported:
    """Names the node, and the parameters that lie behind every such node: the deepest suffix that can train."""
    behind = [p for p in parameters if not _meets_unruled(graph, p, live)]
    error = NotSupported(node.op_type, node.domain, opset, node.name or node.output[0], "gradient rule")
    said = error.args[0].partition(":")[0]
    if node.domain == "com.microsoft":
        error.args = (f"{said}: the model was optimized; train the one it was optimized from",)
    elif behind:
        more = f" and {len(behind) - 8} more" if len(behind) > 8 else ""
        error.args = (f"{said}; what can train lies behind it: {', '.join(behind[:8])}{more}",)
    else:
        error.args = (f"{said}; nothing that was asked to train lies behind it, choose layers nearer to the output",)
    return error


def _meets_unruled(graph: onnx.GraphProto, parameter: str, live: set[str]) -> bool:
    reached = {parameter}
    for node in graph.node:
        if any(t in reached for t in reads_of(node)):
            outputs = [o for o in node.output if o in live]
            if outputs and (node.op_type not in RULES or node.domain not in ("", "ai.onnx")):
                return True
            reached.update(outputs)
    return False


def _tensor(tape: Tape, seen: Look, name: str) -> Tensor | None:
    return Tensor(tape, name, seen.dtypes[name], seen.dims[name]) if name else None


def _value(seen: Look, constants: Mapping[str, onnx.TensorProto], name: str, parameters: Collection[str]) -> np.ndarray | None:
    if name in parameters:
        return None
    return numpy_helper.to_array(constants[name]) if name in constants else seen.values.get(name)


def _attribute(node: onnx.NodeProto, name: str) -> int:
    return next((a.i for a in node.attribute if a.name == name), 0)
