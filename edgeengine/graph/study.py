"""A model looked at once: dataflow, tensors from a run, units, costs and every prefix cut.

Building and inspecting share it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edgeengine.errors import NotSupported
from edgeengine.graph.costs import Executions, Op, Shape, macs
from edgeengine.graph.dataflow import Dataflow, analyze
from edgeengine.graph.frontier import Cuts
from edgeengine.graph.lattice import Limits
from edgeengine.graph.load import Model
from edgeengine.graph.shapes import Tensors, probe
from edgeengine.graph.units import Unit, group

# For balance only: producing one element costs as much as this many multiply-accumulates.
_MACS_PER_ELEMENT = 4


class Shapes(Protocol):
    """Of tensors, and of what ran inside bodies (see shapes.Tensors)."""

    @property
    def executions(self) -> Executions: ...
    def shape(self, name: str) -> Shape | None: ...


@dataclass(frozen=True)
class Sized:
    """A graph whose shapes are known: what its nodes ask for can be counted."""

    flow: Dataflow
    tensors: Shapes

    def shape(self, tensor: str) -> Shape | None:
        """Of a weight or a run-time tensor; None where it is not known."""
        if tensor in self.flow.initializers:
            return tuple(self.flow.initializers[tensor].dims)
        return self.tensors.shape(tensor)

    def node_macs(self, node: int) -> int:
        """Multiply-accumulates of one node. Raises NotSupported for an operator without a cost rule."""
        n = self.flow.nodes[node]
        op = Op(n, tuple(self.shape(t) for t in n.input), tuple(self.shape(t) for t in n.output))
        return macs(op, self.flow.model.opset, self.tensors.executions, str(node))

    def macs(self, nodes: Iterable[int]) -> tuple[int | None, tuple[str, ...]]:
        """(multiply-accumulates of nodes, operators without a cost rule): None where there are any of the latter."""
        total, unknown = 0, dict[str, None]()
        for node in nodes:
            try:
                total += self.node_macs(node)
            except NotSupported as e:
                unknown[f"{e.domain}.{e.op}" if e.domain else e.op] = None
        return (None if unknown else total), tuple(unknown)


@dataclass(frozen=True)
class Study(Sized):
    tensors: Tensors
    units: tuple[Unit, ...]
    cuts: Cuts


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
    sized = Sized(flow, tensors)
    return Study(flow, tensors, units, Cuts(flow, units, [_balance(sized, u) for u in units], tensors.at, limits))


def op_counts(flow: Dataflow, nodes: Iterable[int]) -> dict[str, int]:
    """Operator ("domain.Op" outside the default domain) -> how many, most first."""
    names = ((flow.nodes[n].domain, flow.nodes[n].op_type) for n in nodes)
    counts = Counter(op if domain in ("", "ai.onnx") else f"{domain}.{op}" for domain, op in names)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _balance(sized: Sized, unit: Unit) -> float:
    cost = 0.0
    for node in unit.nodes:
        cost += _MACS_PER_ELEMENT * sum(math.prod(sized.shape(t) or (1,)) for t in sized.flow.writes[node])
        try:
            cost += sized.node_macs(node)
        except NotSupported:
            # An operator without a rule is reported by `macs`; the balance goes by its elements.
            continue
    return cost
