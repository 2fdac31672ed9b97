"""What a processor leaves of a model by its table of operators: runs of nodes that fall back to the CPU, and what must travel.

For devices that are not here; of one that is, ask the provider (see probe.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from edgeengine.errors import NotSupported
from edgeengine.graph.costs import Executions, Shape
from edgeengine.graph.dataflow import analyze
from edgeengine.graph.dtypes import FROM_ONNX
from edgeengine.graph.features import features_of
from edgeengine.graph.load import load_model
from edgeengine.graph.study import Sized
from edgeengine.spec import TensorSpec
from edgeengine.spec.features import Features

# What a runtime works out when it loads a model of static shapes: none of it is left to run.
FOLDED = frozenset({"Constant", "ConstantOfShape", "Identity", "Range", "Shape", "Size"})


@dataclass(frozen=True)
class Island:
    """Nodes that follow one another and fall back together: their names by operator, their features, and the bytes they read
    from the accelerator and write for it.
    """

    operators: dict[str, tuple[str, ...]]
    features: Features
    read_bytes: int
    written_bytes: int


def islands(file: Path, runs: frozenset[str]) -> list[Island]:
    """The islands of the graph in `file`, in its order. `runs`: the operators that the processor takes, as in op_counts."""
    flow = analyze(load_model(file))
    graph = flow.model.proto.graph
    recorded = _Recorded({v.name: _spec(v) for v in (*graph.value_info, *graph.input, *graph.output)})
    folded: set[str] = set()
    found: list[list[int]] = [[]]
    for i in flow.order:
        node = flow.nodes[i]
        if node.op_type in FOLDED or all(t in folded or not (flow.is_runtime(t) or t in flow.inputs) for t in flow.reads[i]):
            folded |= set(flow.writes[i])
        elif _name(node) in runs:
            found.append([])
        else:
            found[-1].append(i)
    return [_island(Sized(flow, recorded), recorded, nodes, folded) for nodes in found if nodes]


@dataclass(frozen=True)
class _Recorded:
    """Shapes as the file states them; what ran inside bodies is not in it."""

    at: Mapping[str, TensorSpec]
    executions: Executions = field(default_factory=dict)

    def shape(self, name: str) -> Shape | None:
        spec = self.at.get(name)
        return spec.dims if spec is not None and spec.is_static else None


def _island(seen: Sized, recorded: _Recorded, nodes: list[int], folded: set[str]) -> Island:
    flow = seen.flow
    made = {t for n in nodes for t in flow.writes[n]}
    read = {t for n in nodes for t in flow.reads[n] if t not in made | folded and (flow.is_runtime(t) or t in flow.inputs)}
    return Island(
        operators={
            op: tuple(flow.nodes[n].name for n in nodes if _name(flow.nodes[n]) == op)
            for op in dict.fromkeys(_name(flow.nodes[n]) for n in nodes)
        },
        features=sum((_features(seen, n) for n in nodes), Features()),
        read_bytes=sum(_nbytes(recorded, read)),
        written_bytes=sum(_nbytes(recorded, made)),
    )


def _features(seen: Sized, node: int) -> Features:
    """None where no rule is known."""
    try:
        return features_of(seen, [node])
    except NotSupported:
        return Features()


def _nbytes(recorded: _Recorded, names: Iterable[str]) -> Iterator[int]:
    yield from ((recorded.at[n].nbytes or 0) if n in recorded.at else 0 for n in names)


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    kind = value.type.tensor_type
    return TensorSpec(
        value.name, FROM_ONNX.get(kind.elem_type, "?"), tuple(d.dim_value or d.dim_param or "?" for d in kind.shape.dim)
    )


def _name(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
