"""Choose a chain of frontiers: shortest paths over a lattice, under a bound on what one part may cost."""

from __future__ import annotations

import numpy as np

from edgeengine.graph.lattice import Lattice

# A part may cost this many times an equal share; the first bound that can be met counts.
_SLACK = (1.25, 1.5, 2.0, 4.0, float("inf"))


def balanced(lattice: Lattice, unit_costs: np.ndarray, parts: int, slack: float | None = None) -> list[int] | None:
    """Indices of the `parts` - 1 frontiers with the least weight under the tightest balance that can be met.

    No part costs more than `slack` equal shares (of several slacks, the first that can be met), or the costliest unit.
    None where no chain of so many parts exists.
    """
    total, largest = float(unit_costs.sum()), float(unit_costs.max(initial=0.0))
    for allowed in _SLACK if slack is None else (slack,):
        found = _exactly(lattice, unit_costs, parts, max(allowed * total / parts, largest))
        if found is not None:
            return found
    return None


def fewest(lattice: Lattice, unit_costs: np.ndarray, limit: float) -> list[int] | None:
    """Indices of the frontiers of a chain with as few parts as possible, none over `limit`, and the least weight of those."""
    cost, steps = lattice.costs(unit_costs), lattice.steps()
    count = len(cost)
    parts = np.full(count, np.inf)
    weight = np.full(count, np.inf)
    parts[0] = weight[0] = 0.0
    came = np.zeros(count, np.int64)
    for i in range(1, count):
        reachable = np.isfinite(steps[i]) & np.isfinite(parts[:i]) & (cost[i] - cost[:i] <= _allowed(limit))
        if not reachable.any():
            continue
        candidates = np.flatnonzero(reachable)
        least = candidates[parts[candidates] == parts[candidates].min()]
        best = int(least[np.argmin(weight[least] + steps[i][least])])
        parts[i], weight[i], came[i] = parts[best] + 1, weight[best] + steps[i][best], best
    return _walk(came, count) if np.isfinite(parts[-1]) else None


def most_parts(lattice: Lattice) -> int:
    """The length of the longest chain: the most parts the frontiers allow."""
    longest = np.zeros(len(lattice.frontiers), np.int64)
    for i, step in enumerate(lattice.steps()[1:], 1):
        nested = np.isfinite(step)
        longest[i] = 1 + longest[:i][nested].max()
    return int(max(1, longest[-1]))


def _exactly(lattice: Lattice, unit_costs: np.ndarray, parts: int, limit: float) -> list[int] | None:
    cost, steps = lattice.costs(unit_costs), lattice.steps()
    count = len(cost)
    best = np.full((parts + 1, count), np.inf, np.float32)
    best[0, 0] = 0.0
    came = np.zeros((parts + 1, count), np.int32)
    for i in range(1, count):
        step = np.where(cost[i] - cost[:i] <= _allowed(limit), steps[i], np.inf)
        sums = best[:-1, :i] + step
        came[1:, i] = np.argmin(sums, axis=1)
        best[1:, i] = sums[np.arange(parts), came[1:, i]]
    if not np.isfinite(best[parts, -1]):
        return None
    chain = [count - 1]
    for k in range(parts, 0, -1):
        chain.append(int(came[k, chain[-1]]))
    return chain[-2:0:-1]


def _walk(came: np.ndarray, count: int) -> list[int]:
    chain = [count - 1]
    while chain[-1]:
        chain.append(int(came[chain[-1]]))
    return chain[-2:0:-1]


def _allowed(limit: float) -> float:
    """A hair of tolerance: a sum of costs may exceed the limit by rounding alone."""
    return limit * (1 + 1e-9)
