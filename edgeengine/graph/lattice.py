"""Every place a model can be cut: its frontiers, and how they nest.

A frontier is a downward-closed set of units: what runs before the cut. It need not be a prefix of one order of the file;
parallel branches give many. They are enumerated size by size: all of them in a small graph, the lightest few of each
size in a large one, and always the prefixes of the units' own order, which nest from end to end. What a cut costs is
counted per tensor: bytes, times what a boundary at it undoes (`boundary.py`), and an overhead for each; a tensor that
several later parts read counts once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgeengine.graph.boundary import factors
from edgeengine.graph.dataflow import Dataflow
from edgeengine.graph.units import Unit

# What handing over one more tensor costs, as if it were that many bytes more.
TENSOR_OVERHEAD_BYTES = 16384
# Sets kept of each size: all that a graph of a dozen units has, fewer the larger the graph.
_MOST_PER_SIZE, _LEAST_PER_SIZE, _EXPANDED = 1024, 2, 12_000
# Frontiers searched for chains; of more, the lightest of each size.
_SEARCHED = 4096
_BLOCK = 256


@dataclass(frozen=True)
class Limits:
    """What a boundary may carry at most; None is no limit."""

    tensors: int | None = None
    nbytes: int | None = None

    def allow(self, tensors: int, nbytes: int) -> bool:
        return (self.tensors is None or tensors <= self.tensors) and (self.nbytes is None or nbytes <= self.nbytes)


@dataclass(frozen=True)
class Frontier:
    """`before` is a bit per unit. `tensors` cross from them to the rest, in order of making; `weight` ranks the cut."""

    before: int
    tensors: tuple[str, ...]
    nbytes: int
    weight: int

    @property
    def size(self) -> int:
        return self.before.bit_count()


class Lattice:
    """The frontiers of a model, the empty one first and the whole one last, in order of size."""

    def __init__(self, flow: Dataflow, units: Sequence[Unit], nbytes: Callable[[str], int], limits: Limits | None = None):
        self.units = tuple(units)
        self._nbytes = nbytes
        self._factors = factors(flow)
        unit_of = {n: u for u, unit in enumerate(self.units) for n in unit.nodes}
        self._maker = {t: u for u, unit in enumerate(self.units) for n in unit.nodes for t in flow.writes[n]}
        self._readers = {t: sum({1 << unit_of[r] for r in flow.readers.get(t, ())}) for t in self._maker}
        self._made = [[t for n in unit.nodes for t in flow.writes[n]] for unit in self.units]
        self._needs = [sum({1 << self._maker[t] for t in unit.reads if t in self._maker}) for unit in self.units]
        self.prefixes = self._prefixes()
        self.complete = True
        found = self._enumerate()
        allowed = limits or Limits()
        inner = [f for f in found if allowed.allow(len(f.tensors), f.nbytes)]
        self.frontiers = (self.prefixes[0], *_thinned(inner), self.prefixes[-1]) if self.units else (self.prefixes[0],)
        self._steps: list[np.ndarray] | None = None

    def costs(self, unit_costs: np.ndarray) -> np.ndarray:
        """The cost before each frontier, float64[frontiers]."""
        return np.asarray(self._members().astype(np.float64) @ unit_costs)

    def steps(self) -> list[np.ndarray]:
        """For each frontier i, float32[i]: the weight that a part from frontier j to i adds, infinite where they do not nest.

        The weight is that of the tensors made in the part and read after it.
        """
        if self._steps is None:
            members = self._members()
            index = {t: k for k, t in enumerate(dict.fromkeys(t for f in self.frontiers for t in f.tensors))}
            made = members[:, [self._maker[t] for t in index]] if index else np.zeros((len(members), 0), np.float32)
            sizes = members.sum(axis=1)
            self._steps = []
            for at in range(0, len(members), _BLOCK):
                block = members[at : at + _BLOCK]
                inside = block @ members.T == sizes
                weights = np.zeros((len(block), len(index)), np.float32)
                for row, frontier in zip(weights, self.frontiers[at : at + _BLOCK], strict=True):
                    for t in frontier.tensors:
                        row[index[t]] = self._weight(t)
                added = weights.sum(axis=1)[:, None] - weights @ made.T
                added[~inside | (sizes[at : at + _BLOCK, None] == sizes)] = np.inf
                self._steps.extend(added[k, : at + k].astype(np.float32) for k in range(len(block)))
        return self._steps

    def _weight(self, tensor: str) -> int:
        return self._nbytes(tensor) * self._factors.get(tensor, 1) + TENSOR_OVERHEAD_BYTES

    def _members(self) -> np.ndarray:
        """float32[frontiers, units]: 1 where a unit lies before a frontier."""
        width = max(1, (len(self.units) + 7) // 8)
        packed = np.frombuffer(b"".join(f.before.to_bytes(width, "little") for f in self.frontiers), np.uint8)
        bits = np.unpackbits(packed.reshape(-1, width), axis=1, bitorder="little")
        return bits[:, : len(self.units)].astype(np.float32)

    def _prefixes(self) -> tuple[Frontier, ...]:
        frontier = Frontier(0, (), 0, 0)
        result = [frontier]
        for u in range(len(self.units)):
            frontier = self._extended(frontier, u)
            result.append(frontier)
        return tuple(result)

    def _extended(self, frontier: Frontier, unit: int) -> Frontier:
        before = frontier.before | 1 << unit
        tensors = [t for t in (*frontier.tensors, *self._made[unit]) if self._readers[t] & ~before]
        return Frontier(before, tuple(tensors), sum(map(self._nbytes, tensors)), sum(map(self._weight, tensors)))

    def _enumerate(self) -> list[Frontier]:
        """Inner frontiers by growing each kept set by each unit whose makers it holds."""
        count = len(self.units)
        most = max(_LEAST_PER_SIZE, min(_MOST_PER_SIZE, _EXPANDED // max(1, count)))
        layer = {0: self.prefixes[0]}
        found: list[Frontier] = []
        for size in range(1, count):
            following: dict[int, Frontier] = {}
            for frontier in layer.values():
                for u in self._ready(frontier.before):
                    grown = frontier.before | 1 << u
                    if grown not in following:
                        following[grown] = self._extended(frontier, u)
            if len(following) > most:
                self.complete = False
                kept = heapq.nsmallest(most, following.values(), key=lambda f: (f.weight, f.before))
                following = {f.before: f for f in (*kept, self.prefixes[size])}
            layer = following
            found.extend(sorted(layer.values(), key=lambda f: (f.weight, f.before)))
        return found

    def _ready(self, before: int) -> list[int]:
        missing = ((1 << len(self.units)) - 1) & ~before
        found = []
        # Units far behind the first missing one wait for it in a long graph: a window bounds the search.
        window = 64
        while missing and window:
            lowest = missing & -missing
            u = lowest.bit_length() - 1
            if not self._needs[u] & ~before & ~lowest:
                found.append(u)
            missing ^= lowest
            window -= 1
        if missing:
            self.complete = False
        return found


def _thinned(frontiers: list[Frontier]) -> list[Frontier]:
    """At most _SEARCHED frontiers, as many of each size as fit, the lightest first. They come sorted by size and weight."""
    if len(frontiers) <= _SEARCHED:
        return frontiers
    sizes: dict[int, list[Frontier]] = {}
    for f in frontiers:
        sizes.setdefault(f.size, []).append(f)
    share = max(1, _SEARCHED // len(sizes))
    return [f for group in sizes.values() for f in group[:share]]
