"""Choose where to cut a model.

`by_count` and `by_limit` take a shortest path over all frontiers (`lattice.py`, `search.py`); `by_tensors` cuts after the
ancestors of given tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgeengine.errors import UserError, near
from edgeengine.graph.dataflow import Dataflow, walk
from edgeengine.graph.lattice import Frontier, Lattice, Limits
from edgeengine.graph.quantized import is_dequantizer
from edgeengine.graph.search import balanced, fewest, most_parts
from edgeengine.graph.units import Unit, describe
from edgeengine.spec.tensor import TensorSpec

# By default: at most this many segments, none below this share of an equal one, none below this many
# multiply-accumulates.
_DEFAULT_PARTS = 4
_LEAST_SHARE = 0.25
_LEAST_COST = 250_000.0


@dataclass(frozen=True)
class Segmentation:
    """`segments[k]` are the node indices of segment k in topological order. `notes` are sentences for the user."""

    segments: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()


class Cuts:
    """Where one model can be cut. `costs` are those of its units, in any unit of measure; `limits` bound a boundary."""

    def __init__(
        self,
        flow: Dataflow,
        units: Sequence[Unit],
        costs: Sequence[float],
        tensors: Mapping[str, TensorSpec],
        limits: Limits | None = None,
    ):
        self.flow, self.units, self.tensors, self.limits = flow, tuple(units), tensors, limits
        self.unit_costs = np.asarray(costs, np.float64)
        self.cost = np.concatenate([[0.0], np.cumsum(self.unit_costs)])

    @cached_property
    def lattice(self) -> Lattice:
        return Lattice(self.flow, self.units, self._nbytes, self.limits)

    @property
    def at(self) -> tuple[Frontier, ...]:
        """The frontier after the first p units, for p in 0..len(units)."""
        return self.lattice.prefixes

    def share(self, frontier: Frontier) -> float:
        """The share of the whole cost that lies before a frontier."""
        inside = [u for u in range(len(self.units)) if frontier.before >> u & 1]
        total = self.cost[-1]
        return float(self.unit_costs[inside].sum() / total) if total else len(inside) / max(1, len(self.units))

    @cached_property
    def most(self) -> int:
        """The most parts possible."""
        return most_parts(self.lattice) if self.limits else max(1, len(self.units))

    def by_count(self, parts: int, costs: np.ndarray | None = None, slack: float | None = None) -> Segmentation:
        """Cut into `parts` balanced segments with the least bytes crossing. `costs` replace the units' own.

        Raises UserError naming the unit that forbids it.
        """
        if parts < 1:
            raise UserError(f"{parts} parts: a model has at least one; give 1 to {self.most}")
        found = None
        if parts <= self.most:
            found = balanced(self.lattice, self.unit_costs if costs is None else costs, parts, slack)
        if found is None:
            bound = " within the limits" if self.limits else ""
            raise UserError(
                f"{self.flow.model.path}: {parts} parts are impossible{bound}, the most is {self.most}: "
                f"unit {self.largest()} cannot be cut"
            )
        return self._chain(found)

    def by_limit(self, costs: np.ndarray, limit: float) -> Segmentation | None:
        """Cut into as few segments as possible, none costing more than `limit`; None where that cannot be."""
        found = fewest(self.lattice, costs, limit)
        return None if found is None else self._chain(found)

    def by_default(self) -> Segmentation:
        """Up to four segments: fewer where the model is small or one of its units outweighs the rest."""
        total = float(self.cost[-1])
        for parts in range(min(_DEFAULT_PARTS, self.most), 1, -1):
            found = balanced(self.lattice, self.unit_costs, parts)
            if found is None:
                continue
            cost = self.lattice.costs(self.unit_costs)
            least = min(np.diff(cost[[0, *found, -1]]))
            if least >= max(_LEAST_COST, _LEAST_SHARE * total / parts):
                return self._chain(found)
        return self._chain([])

    def unit_of(self, segmentation: Segmentation) -> list[list[int]]:
        """The units of each segment."""
        of = {n: u for u, unit in enumerate(self.units) for n in unit.nodes}
        return [sorted({of[n] for n in segment}) for segment in segmentation.segments]

    def by_tensors(self, frontiers: Sequence[Sequence[str]]) -> Segmentation:
        """Cut after the ancestors of each set of tensors.

        Frontiers may come in any order; each is widened by those before it, so that they nest. What crosses beyond the
        tensors listed is noted. Raises UserError for an unknown tensor, and for a frontier that leaves a segment empty.
        """
        path = self.flow.model.path
        befores = sorted(((self._ancestors(f), tuple(f)) for f in frontiers), key=lambda b: len(b[0]))
        taken: frozenset[int] = frozenset()
        order: list[int] = []
        positions: list[int] = []
        notes: list[str] = []
        for before, listed in befores:
            text = ", ".join(listed)
            new = before - taken
            if not new:
                raise UserError(f"{path}: no node lies before the frontier {text} and after the one before it; drop one")
            taken |= before
            if len(taken) == len(self.units):
                raise UserError(f"{path}: no node lies after the frontier {text}; cut at tensors further up")
            order += sorted(new)
            positions.append(len(order))
            crossing = self._crossing([self.units[u] for u in sorted(taken)])
            extra = [t for t in crossing if t not in listed]
            if extra:
                notes.append(f"the cut at {text} also passes {', '.join(extra)}")
        order += [u for u in range(len(self.units)) if u not in taken]
        result = self._segmentation(positions, [self.units[u] for u in order])
        return Segmentation(result.segments, tuple(notes))

    def _nbytes(self, tensor: str) -> int:
        spec = self.tensors.get(tensor)
        return (spec.nbytes or 0) if spec is not None else 0

    def _chain(self, indices: Sequence[int]) -> Segmentation:
        """Cut at the frontiers of these indices, which nest."""
        order: list[int] = []
        positions: list[int] = []
        taken = 0
        for frontier in [*(self.lattice.frontiers[i] for i in indices), self.lattice.prefixes[-1]]:
            order += [u for u in range(len(self.units)) if frontier.before & ~taken & 1 << u]
            taken = frontier.before
            positions.append(len(order))
        return self._segmentation(positions[:-1], [self.units[u] for u in order])

    def _ancestors(self, tensors: Sequence[str]) -> frozenset[int]:
        path = self.flow.model.path
        unit_of = {n: u for u, unit in enumerate(self.units) for n in unit.nodes}
        todo = []
        for tensor in tensors:
            node = self.flow.producer.get(tensor)
            if node is not None and is_dequantizer(self.flow.nodes[node]) and self.flow.is_runtime(tensor):
                # Its readers dequantize for themselves: the cut is at the quantized tensor.
                tensor = self.flow.nodes[node].input[0]
                node = self.flow.producer.get(tensor)
            if node not in unit_of:
                if tensor in self.flow.inputs:
                    raise UserError(f"{path}: {tensor!r} is an input of the model, nothing lies before it; cut further down")
                if tensor in self.flow.initializers or node is not None:
                    raise UserError(f"{path}: {tensor!r} does not depend on the inputs, or no output on it; cut elsewhere")
                made = (t for i in self.flow.order for t in self.flow.writes[i])
                raise UserError(f"{path}: has no tensor {tensor!r} to cut at; {near(tensor, made)}")
            todo.append(unit_of[node])
        seen: set[int] = set()
        while todo:
            u = todo.pop()
            if u not in seen:
                seen.add(u)
                makers = (self.flow.producer.get(t) for t in self.units[u].reads)
                todo.extend(unit_of[m] for m in makers if m in unit_of)
        return frozenset(seen)

    def _crossing(self, before: Sequence[Unit]) -> list[str]:
        inside = {n for unit in before for n in unit.nodes}
        written = dict.fromkeys(t for unit in before for n in unit.nodes for t in self.flow.writes[n])
        return [t for t in written if any(r not in inside for r in self.flow.readers.get(t, ()))]

    def _segmentation(self, positions: Sequence[int], units: Sequence[Unit]) -> Segmentation:
        bounds = [0, *positions, len(units)]
        rank = {n: i for i, n in enumerate(self.flow.order)}
        return Segmentation(
            tuple(
                tuple(sorted((n for unit in units[a:b] for n in unit.nodes), key=rank.__getitem__))
                for a, b in itertools.pairwise(bounds)
            )
        )

    def largest(self) -> str:
        """The unit that takes most of the model: the one with the most nodes inside, then the costliest."""
        if not self.units:
            return "of constants"
        sizes = [sum(1 for _ in walk(self.flow.nodes[n] for n in unit.nodes)) for unit in self.units]
        u = max(range(len(self.units)), key=lambda u: (sizes[u], self.cost[u + 1] - self.cost[u]))
        return describe(self.flow, self.units[u])
