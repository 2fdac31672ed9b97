"""Choose where to cut. A cut is a downward-closed set of units; its boundary are the tensors made before and read
after.

With units in topological order every prefix is such a set, so `by_count` is a shortest path over positions: among cuts
whose segments stay balanced it takes those with the least bytes crossing. `by_tensors` cuts after the ancestors of
given tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeengine.errors import UserError
from edgeengine.graph.dataflow import Dataflow, walk
from edgeengine.graph.names import near
from edgeengine.graph.quantized import is_dequantizer
from edgeengine.graph.units import Unit, describe
from edgeengine.spec.tensor import TensorSpec

# What handing over one more tensor costs, as if it were that many bytes more.
TENSOR_OVERHEAD_BYTES = 4096
# A segment may cost this many times an equal share; the first bound that can be met counts.
_SLACK = (1.25, 1.5, 2.0, 4.0, float("inf"))
# By default: at most this many segments, none below this share of an equal one, none below this many
# multiply-accumulates.
_DEFAULT_PARTS = 4
_LEAST_SHARE = 0.25
_LEAST_COST = 250_000.0


@dataclass(frozen=True)
class Cut:
    """The first `position` units, and the run-time tensors that cross from them to the rest, in order of making."""

    position: int
    tensors: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class Segmentation:
    """`segments[k]` are the node indices of segment k in topological order. `notes` are sentences for the user."""

    segments: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...] = ()


class Cuts:
    """All prefix cuts of one model: `at[p]` is the cut after p units, for p in 0..len(units)."""

    def __init__(self, flow: Dataflow, units: Sequence[Unit], costs: Sequence[float], tensors: Mapping[str, TensorSpec]):
        self.flow, self.units, self.tensors = flow, tuple(units), tensors
        self.cost = np.concatenate([[0.0], np.cumsum(np.asarray(costs, np.float64))])
        self.at = tuple(self._cuts())

    @property
    def share(self) -> np.ndarray:
        """The share of the whole cost that lies before each position, float64[len(units) + 1]."""
        return self.cost / self.cost[-1] if self.cost[-1] else np.linspace(0.0, 1.0, len(self.cost))

    def by_count(self, parts: int) -> Segmentation:
        """Cut into `parts` balanced segments with the least bytes crossing.

        Raises UserError naming the unit that forbids it.
        """
        most = max(1, len(self.units))
        if not 1 <= parts <= most:
            if parts < 1:
                raise UserError(f"{parts} parts: a model has at least one; give 1 to {most}")
            raise UserError(
                f"{self.flow.model.path}: {parts} parts are impossible, the most is {most}: unit {self.largest()} cannot be cut"
            )
        return self._segmentation(self._positions(parts), self.units)

    def by_default(self) -> Segmentation:
        """Up to four segments: fewer where the model is small or one of its units outweighs the rest."""
        total = float(self.cost[-1])
        for parts in range(min(_DEFAULT_PARTS, len(self.units)), 1, -1):
            positions = self._positions(parts)
            least = min(np.diff(self.cost[[0, *positions, len(self.units)]]))
            if least >= max(_LEAST_COST, _LEAST_SHARE * total / parts):
                return self._segmentation(positions, self.units)
        return self._segmentation([], self.units)

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

    def _cuts(self) -> list[Cut]:
        """One sweep over the units keeps the set of crossing tensors up to date."""
        left = {t: len(r) for t, r in self.flow.readers.items()}
        crossing: dict[str, int] = {}
        result = [Cut(0, (), 0)]
        for position, unit in enumerate(self.units, 1):
            for node in unit.nodes:
                for tensor in self.flow.reads[node]:
                    left[tensor] -= 1
                    if not left[tensor]:
                        crossing.pop(tensor, None)
                for tensor in self.flow.writes[node]:
                    if left.get(tensor):
                        crossing[tensor] = self._nbytes(tensor)
            result.append(Cut(position, tuple(crossing), sum(crossing.values())))
        return result

    def _nbytes(self, tensor: str) -> int:
        spec = self.tensors.get(tensor)
        return (spec.nbytes or 0) if spec is not None else 0

    def _positions(self, parts: int) -> list[int]:
        """The positions of `parts` - 1 cuts: least bytes crossing under the tightest balance that can be met."""
        units = len(self.units)
        weight = np.array([c.nbytes + TENSOR_OVERHEAD_BYTES * len(c.tensors) for c in self.at], np.float64)
        largest = float(np.max(np.diff(self.cost))) if units else 0.0
        for slack in _SLACK:
            limit = max(slack * float(self.cost[-1]) / parts, largest)
            positions = _shortest(self.cost, weight, parts, limit)
            if positions is not None:
                return positions
        raise AssertionError("an unbounded slack is always met")

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


def _shortest(cost: np.ndarray, weight: np.ndarray, parts: int, limit: float) -> list[int] | None:
    """Positions 0 < p1 < … < last with every segment's cost within `limit` and the least weight; None if there are none."""
    last = len(cost) - 1
    # A hair of tolerance: a prefix sum of a segment may exceed the limit by rounding alone.
    allowed = limit * (1 + 1e-9)
    best = np.full(last + 1, np.inf)
    best[0] = 0.0
    came: list[np.ndarray] = []
    lowest = np.searchsorted(cost, cost - allowed)
    for part in range(1, parts + 1):
        following = np.full(last + 1, np.inf)
        source = np.zeros(last + 1, np.int64)
        for p in [last] if part == parts else range(part, last):
            window = best[lowest[p] : p]
            if len(window):
                q = int(np.argmin(window))
                following[p] = window[q] + (weight[p] if part < parts else 0.0)
                source[p] = lowest[p] + q
        came.append(source)
        best = following
    if not np.isfinite(best[last]):
        return None
    positions = [last]
    for source in reversed(came):
        positions.append(int(source[positions[-1]]))
    return positions[-2:0:-1]
