"""A model looked at once: dataflow, tensors from a run, units, costs and every prefix cut.

Building and inspecting share it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeengine.errors import NotSupported
from edgeengine.graph.costs import Op, Shape, macs
from edgeengine.graph.dataflow import Dataflow, analyze
from edgeengine.graph.frontier import Cuts
from edgeengine.graph.lattice import Limits
from edgeengine.graph.load import Model
from edgeengine.graph.shapes import Tensors, probe
from edgeengine.graph.units import Unit, group

# For balance only: producing one element costs as much as this many multiply-accumulates.
_MACS_PER_ELEMENT = 4


@dataclass(frozen=True)
class Study:
    flow: Dataflow
    tensors: Tensors
    units: tuple[Unit, ...]
    cuts: Cuts

    def node_macs(self, node: int) -> int:
        """Multiply-accumulates of one node. Raises NotSupported for an operator without a cost rule."""
        return _node_macs(self.flow, self.tensors, node)

    def macs(self, nodes: Iterable[int]) -> tuple[int | None, tuple[str, ...]]:
        """(multiply-accumulates of nodes, operators without a cost rule): None where there are any of the latter."""
        total, unknown = 0, dict[str, None]()
        for node in nodes:
            try:
                total += self.node_macs(node)
            except NotSupported as e:
                unknown[f"{e.domain}.{e.op}" if e.domain else e.op] = None
        return (None if unknown else total), tuple(unknown)


def study(
    model: Model,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    limits: Limits | None = None,
) -> Study:
    """Analyze, run (in a child process), group and cost a model; `limits` bound what a boundary may carry.

    Raises UserError as `analyze` and `probe` do.
    """
    flow = analyze(model)
    tensors = probe(flow, shapes, values)
    units = group(flow, tensors.unportable)
    return Study(flow, tensors, units, Cuts(flow, units, [_balance(flow, tensors, u) for u in units], tensors.at, limits))


def op_counts(flow: Dataflow, nodes: Iterable[int]) -> dict[str, int]:
    """Operator ("domain.Op" outside the default domain) -> how many, most first."""
    names = ((flow.nodes[n].domain, flow.nodes[n].op_type) for n in nodes)
    counts = Counter(op if domain in ("", "ai.onnx") else f"{domain}.{op}" for domain, op in names)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _balance(flow: Dataflow, tensors: Tensors, unit: Unit) -> float:
    cost = 0.0
    for node in unit.nodes:
        cost += _MACS_PER_ELEMENT * sum(math.prod(tensors.shape(t) or (1,)) for t in flow.writes[node])
        try:
            cost += _node_macs(flow, tensors, node)
        except NotSupported:
            # An operator without a rule is reported by `macs`; the balance goes by its elements.
            continue
    return cost


def _node_macs(flow: Dataflow, tensors: Tensors, node: int) -> int:
    n = flow.nodes[node]

    def shape(tensor: str) -> Shape | None:
        if tensor in flow.initializers:
            return tuple(flow.initializers[tensor].dims)
        return tensors.shape(tensor)

    op = Op(n, tuple(shape(t) for t in n.input), tuple(shape(t) for t in n.output))
    return macs(op, flow.model.opset, tensors.executions, str(node))
