"""What a processor leaves of a model by its table of operators: runs of nodes that fall back to the CPU, and what must travel.

For devices that are not here; of one that is, ask the provider (see probe.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from edgeengine.errors import NotSupported
from edgeengine.graph.costs import CONTROL_FLOW, Op, macs
from edgeengine.graph.dtypes import FROM_ONNX
from edgeengine.spec import TensorSpec

# What a runtime works out when it loads a model of static shapes: none of it is left to run.
FOLDED = frozenset({"Constant", "ConstantOfShape", "Identity", "Range", "Shape", "Size"})


@dataclass(frozen=True)
class Island:
    """Nodes that follow one another and fall back together: their names by operator, their multiply-accumulates, and the bytes
    they read from the accelerator and write for it.
    """

    operators: dict[str, tuple[str, ...]]
    macs: int
    read_bytes: int
    written_bytes: int


def islands(file: Path, runs: frozenset[str]) -> list[Island]:
    """The islands of the graph in `file`, in its order. `runs`: the operators that the processor takes, as in op_counts."""
    model = onnx.load(file, load_external_data=False)
    graph = model.graph
    fixed = {t.name for t in graph.initializer}
    opset = {e.domain: e.version for e in model.opset_import}
    tensors = {v.name: _spec(v) for v in (*graph.value_info, *graph.input, *graph.output)}
    tensors |= {t.name: TensorSpec(t.name, FROM_ONNX.get(t.data_type, "?"), tuple(t.dims)) for t in graph.initializer}
    found: list[list[onnx.NodeProto]] = []
    island: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type in FOLDED or all(not i or i in fixed for i in node.input):
            fixed |= set(node.output)
        elif _name(node) in runs:
            found += [island] if island else []
            island = []
        else:
            island.append(node)
    found += [island] if island else []
    return [_island(nodes, tensors, fixed, opset) for nodes in found]


def _island(nodes: list[onnx.NodeProto], tensors: dict[str, TensorSpec], fixed: set[str], opset: dict[str, int]) -> Island:
    made = {o for n in nodes for o in n.output if o}
    read = {i for n in nodes for i in n.input if i and i not in made and i not in fixed}
    return Island(
        operators={op: tuple(n.name for n in nodes if _name(n) == op) for op in dict.fromkeys(map(_name, nodes))},
        macs=sum(_macs(n, tensors, opset) for n in nodes),
        read_bytes=sum(_nbytes(tensors, read)),
        written_bytes=sum(_nbytes(tensors, made)),
    )


def _macs(node: onnx.NodeProto, tensors: dict[str, TensorSpec], opset: dict[str, int]) -> int:
    """0 where no rule or no shape is known: bodies of control flow, and what has no static shape."""
    known = [tensors[t] for t in (*node.input, *node.output) if t and t in tensors]
    if (node.domain, node.op_type) in CONTROL_FLOW or not all(s.is_static for s in known):
        return 0
    shapes = [[tensors[t].dims if t in tensors else None for t in names] for names in (node.input, node.output)]
    try:
        return macs(Op(node, tuple(shapes[0]), tuple(shapes[1])), opset, {}, node.name)
    except NotSupported:
        return 0


def _nbytes(tensors: dict[str, TensorSpec], names: set[str]) -> Iterator[int]:
    yield from ((tensors[n].nbytes or 0) if n in tensors else 0 for n in names)


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    kind = value.type.tensor_type
    return TensorSpec(
        value.name, FROM_ONNX.get(kind.elem_type, "?"), tuple(d.dim_value or d.dim_param or "?" for d in kind.shape.dim)
    )


def _name(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
