"""Units: the atoms of a cut, and their order.

A unit is a set of nodes that no cut may separate. A control-flow node with its bodies is one node here, so it is one
unit by itself; nodes are glued together where a value between them cannot cross a boundary, and in quantize-dequantize
groups. Other reasons to keep nodes together are further rows of `_glue`.

Units are the strongly connected components of the dataflow once every glued pair is joined in both directions: whatever
lies on a path between two glued nodes falls into their unit, so the units themselves never form a cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from edgeengine.graph.dataflow import Dataflow, bodies, topological, walk
from edgeengine.graph.quantized import glued


@dataclass(frozen=True)
class Unit:
    """Nodes (indices, in topological order) that stay together. `reads` and `writes` are tensor names, outside view."""

    nodes: tuple[int, ...]
    reads: frozenset[str]
    writes: frozenset[str]


def group(flow: Dataflow, unportable: Collection[str] = ()) -> tuple[Unit, ...]:
    """The units of a model in topological order. `unportable` tensors cannot cross a boundary (sequences, …)."""
    component = _components(flow, list(_glue(flow, unportable)))
    members: dict[int, list[int]] = {}
    for i in flow.order:
        members.setdefault(component[i], []).append(i)
    before = {c: {component[s] for i in nodes for s in _sources(flow, i)} - {c} for c, nodes in members.items()}
    order = topological(before, "the units of the model form a cycle; please report this model")
    return tuple(_unit(flow, members[c]) for c in order)


def describe(flow: Dataflow, unit: Unit) -> str:
    """How messages name a unit: "If 'If_0' (412 nodes in its bodies)"."""
    label = flow.label(unit.nodes[0])
    if len(unit.nodes) > 1:
        return f"{label} to {flow.label(unit.nodes[-1])} ({len(unit.nodes)} nodes that stay together)"
    inside = sum(1 for body in bodies(flow.nodes[unit.nodes[0]]) for _ in walk(body.node))
    return f"{label} ({inside} nodes in its bodies)" if inside else label


def _glue(flow: Dataflow, unportable: Collection[str]) -> Iterator[tuple[int, int]]:
    """Pairs (maker, reader) that must stay in one unit."""
    for tensor in unportable:
        if flow.is_runtime(tensor):
            for reader in flow.readers.get(tensor, ()):
                yield flow.producer[tensor], reader
    yield from glued(flow.nodes, flow.order, flow.producer, flow.readers)


def _sources(flow: Dataflow, node: int) -> list[int]:
    """The run-time nodes whose tensors a node reads."""
    return [flow.producer[t] for t in flow.reads[node] if flow.is_runtime(t)]


def _unit(flow: Dataflow, nodes: list[int]) -> Unit:
    writes = frozenset(t for i in nodes for t in flow.writes[i])
    return Unit(tuple(nodes), frozenset(t for i in nodes for t in flow.reads[i]) - writes, writes)


def _components(flow: Dataflow, glue: list[tuple[int, int]]) -> dict[int, int]:
    """Node -> the smallest node of its strongly connected component."""
    if not glue:
        return {i: i for i in flow.order}
    forward: dict[int, set[int]] = {i: set() for i in flow.order}
    for i in flow.order:
        for s in _sources(flow, i):
            forward[s].add(i)
    for maker, reader in glue:
        forward[reader].add(maker)
    backward: dict[int, set[int]] = {i: set() for i in flow.order}
    for i, successors in forward.items():
        for j in successors:
            backward[j].add(i)
    # Glue is rare and local: grow a component only from glued nodes, by what they reach and what reaches them.
    component = {i: i for i in flow.order}
    grown: set[int] = set()
    for maker, _ in glue:
        if maker not in grown:
            members = _reach(maker, forward) & _reach(maker, backward)
            first = min(members)
            component.update(dict.fromkeys(members, first))
            grown |= members
    return component


def _reach(start: int, edges: dict[int, set[int]]) -> set[int]:
    seen = {start}
    todo = [start]
    while todo:
        for j in edges[todo.pop()]:
            if j not in seen:
                seen.add(j)
                todo.append(j)
    return seen
