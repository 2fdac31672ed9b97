"""Cut by what a provider supports: the maximal supported regions of a model, minus those too small to pay.

A region is a connected set of units that the provider can run; it can be taken out as one subgraph, so between two of
its units no path leads through anything outside, counted over the regions themselves (two regions must not wait for each
other). No two regions of the result could be joined, and no supported unit beside one could be added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx

from edgeengine.graph.dataflow import topological, walk
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.infer import infer_types
from edgeengine.graph.study import Study
from edgeengine.graph.units import Unit

# A region below this many multiply-accumulates (and element visits counted as such) costs more to hand over than it saves.
LEAST_COST = 250_000.0


@dataclass(frozen=True)
class Supported:
    """One row of a provider's table: an operator, and under which conditions. None is no condition.

    `dtypes` are our names ("float32", …) that every tensor of the node must have; `opset` and `ranks` are inclusive bounds;
    `static` asks for shapes that do not depend on the input's.
    """

    op: str
    domain: str = ""
    dtypes: frozenset[str] | None = None
    opset: tuple[int, int] | None = None
    ranks: tuple[int, int] | None = None
    static: bool = False


@dataclass(frozen=True)
class Region:
    """`units` by index, in order. `cost` is in multiply-accumulates, as the cut search counts them."""

    units: tuple[int, ...]
    cost: float


class Support:
    """What of one model a provider runs: by its table, or as a probe found it (node -> why the provider leaves it)."""

    def __init__(self, seen: Study, by: Iterable[Supported] | Mapping[int, str]):
        self._seen = seen
        self._left = by if isinstance(by, Mapping) else None
        self._rows: dict[tuple[str, str], list[Supported]] = {}
        for row in () if isinstance(by, Mapping) else by:
            self._rows.setdefault((row.domain, row.op), []).append(row)
        self._types = infer_types(seen.flow)
        units = seen.units
        maker = {t: u for u, unit in enumerate(units) for t in unit.writes}
        self._before = {u: {maker[t] for t in unit.reads if t in maker} for u, unit in enumerate(units)}
        self.reasons = {u: reason for u, unit in enumerate(units) if (reason := self._refusal(unit))}

    def regions(self, least_cost: float = LEAST_COST) -> tuple[Region, ...]:
        """The maximal supported regions that cost at least `least_cost`, in order of their first unit."""
        found = []
        for members in self._clusters():
            cost = float(self._seen.cuts.unit_costs[list(members)].sum())
            if members[0] not in self.reasons and cost >= least_cost:
                found.append(Region(members, cost))
        return tuple(sorted(found, key=lambda r: r.units))

    def segmentation(self, least_cost: float = LEAST_COST) -> tuple[Segmentation, tuple[bool, ...]]:
        """(segments, for each whether the provider runs it): the regions, and what lies between them in as few segments.

        A model without a region is one segment.
        """
        regions = self.regions(least_cost)
        of = {u: k for k, region in enumerate(regions) for u in region.units}
        count = len(regions)
        cluster = {u: of.get(u, count + u) for u in self._before}
        before: dict[int, set[int]] = {c: set() for c in cluster.values()}
        for u, sources in self._before.items():
            before[cluster[u]] |= {cluster[s] for s in sources} - {cluster[u]}
        ready = self._grouped(before, count)
        units = [[u for c in group for u in self._before if cluster[u] == c] for group, _ in ready]
        rank = {n: i for i, n in enumerate(self._seen.flow.order)}
        segments = tuple(
            tuple(sorted((n for u in group for n in self._seen.units[u].nodes), key=rank.__getitem__)) for group in units
        )
        return Segmentation(segments), tuple(supported for _, supported in ready)

    @staticmethod
    def _grouped(before: Mapping[int, set[int]], regions: int) -> list[tuple[list[int], bool]]:
        """Clusters in an order that runs everything else that can run before it starts the next region."""
        done: set[int] = set()
        left = set(before)
        groups: list[tuple[list[int], bool]] = []
        while left:
            rest: list[int] = []
            while free := sorted(c for c in left if c >= regions and before[c] <= done):
                rest += free
                done |= set(free)
                left -= set(free)
            if rest:
                groups.append((rest, False))
            region = next((c for c in sorted(left) if c < regions and before[c] <= done), None)
            if region is not None:
                groups.append(([region], True))
                done.add(region)
                left.discard(region)
        return groups

    def _clusters(self) -> list[tuple[int, ...]]:
        """Units joined along edges between supported ones, as long as the clusters form no cycle."""
        count = len(self._seen.units)
        cluster = list(range(count))
        members = {u: {u} for u in range(count)}
        after: dict[int, set[int]] = {u: set() for u in range(count)}
        for u, sources in self._before.items():
            for s in sources:
                after[s].add(u)
        edges = [(s, u) for u in topological(self._before, "") for s in sorted(self._before[u])]
        edges = [(s, u) for s, u in edges if s not in self.reasons and u not in self.reasons]
        joined = True
        while joined:
            joined = False
            for s, u in edges:
                a, b = cluster[s], cluster[u]
                if a == b or _other_way(after, a, b):
                    continue
                members[a] |= members.pop(b)
                for m in members[a]:
                    cluster[m] = a
                following = (after[a] | after.pop(b)) - {a, b}
                after[a] = following
                for targets in after.values():
                    if b in targets:
                        targets.discard(b)
                        targets.add(a)
                after[a].discard(a)
                joined = True
        return [tuple(sorted(m)) for m in members.values()]

    def _refusal(self, unit: Unit) -> str:
        """Why the provider does not run a unit; empty where it does."""
        flow = self._seen.flow
        if self._left is not None:
            left = next((i for i in unit.nodes if i in self._left), None)
            return "" if left is None else f"{flow.label(left)}: {self._left[left]}"
        for i in unit.nodes:
            for node in walk([flow.nodes[i]]):
                domain = "" if node.domain == "ai.onnx" else node.domain
                rows = self._rows.get((domain, node.op_type), [])
                refusals = [self._unmet(node, row) for row in rows]
                if not rows:
                    return f"{flow.label(i)}: {domain + '.' if domain else ''}{node.op_type} is not in the table"
                if all(refusals):
                    return f"{flow.label(i)}: {refusals[0]}"
        return ""

    def _unmet(self, node: onnx.NodeProto, row: Supported) -> str:
        flow, at = self._seen.flow, self._seen.tensors.at
        version = flow.model.opset.get(row.domain, 0)
        if row.opset is not None and not row.opset[0] <= version <= row.opset[1]:
            return f"opset {version} is outside {row.opset[0]} to {row.opset[1]}"
        for name in (t for t in (*node.input, *node.output) if t):
            spec = at.get(name)
            if spec is None:
                # A weight, or a tensor inside a body: nothing but its use says more.
                continue
            if row.dtypes is not None and spec.dtype not in row.dtypes:
                return f"tensor {name!r} is {spec.dtype}"
            if row.ranks is not None and not row.ranks[0] <= len(spec.shape) <= row.ranks[1]:
                return f"tensor {name!r} has rank {len(spec.shape)}"
            if row.static and not self._is_static(name):
                return f"tensor {name!r} has no static shape"
        return ""

    def _is_static(self, tensor: str) -> bool:
        value = self._types.get(self._seen.flow.copies.get(tensor, tensor))
        if value is None or not value.type.tensor_type.HasField("shape"):
            return False
        return all(d.HasField("dim_value") for d in value.type.tensor_type.shape.dim)


def _other_way(after: Mapping[int, set[int]], a: int, b: int) -> bool:
    """Whether a path leads from cluster a to cluster b over a third one: joining the two would close a cycle."""
    stack = [c for c in after[a] if c != b]
    seen = set(stack)
    while stack:
        c = stack.pop()
        if c == b:
            return True
        for n in after[c]:
            if n not in seen:
                seen.add(n)
                stack.append(n)
    return False
