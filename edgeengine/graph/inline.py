"""Replace an If whose condition is known by the branch it takes, in place.

The branch's tensors keep their names where these are free in the whole model, and get new ones where not; what the
branch returns takes the names of the If's outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from edgeengine.graph.dataflow import bodies


def names_in(graph: onnx.GraphProto) -> set[str]:
    """Every tensor name of a graph, at any depth."""
    found = {i.name for i in graph.input} | {o.name for o in graph.output} | {t.name for t in graph.initializer}
    found |= {s.values.name for s in graph.sparse_initializer}
    for node in graph.node:
        found.update(node.input)
        found.update(node.output)
        for body in bodies(node):
            found |= names_in(body)
    return found


def inline(graph: onnx.GraphProto, taken: Mapping[int, bool], used: set[str]) -> None:
    """Replace the If nodes of `graph` at the positions `taken` (position -> condition) by their branches.

    `used` are the names that are not free, of the whole model; new ones are added.
    """
    nodes: list[onnx.NodeProto] = []
    for position, node in enumerate(graph.node):
        if position not in taken:
            nodes.append(node)
            continue
        branch = next(a.g for a in node.attribute if a.name == ("then_branch" if taken[position] else "else_branch"))
        nodes.extend(_opened(graph, node, branch, used))
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _opened(graph: onnx.GraphProto, node: onnx.NodeProto, branch: onnx.GraphProto, used: set[str]) -> Iterable[onnx.NodeProto]:
    made = [name for n in branch.node for name in n.output if name]
    held = [t.name for t in branch.initializer] + [s.values.name for s in branch.sparse_initializer]
    returned = [o.name for o in branch.output]
    rename = {name: _free(name, node, used) for name in (*made, *held)}
    copies = []
    for name, result in zip(returned, node.output, strict=True):
        if name in made and rename[name] not in node.output and result:
            rename[name] = result
        elif result:
            # Returned twice, or held as a constant: the branch hands on a copy.
            copies.append((name, result))
    for tensor in branch.initializer:
        graph.initializer.add().CopyFrom(tensor)
        graph.initializer[-1].name = rename[tensor.name]
    for sparse in branch.sparse_initializer:
        graph.sparse_initializer.add().CopyFrom(sparse)
        graph.sparse_initializer[-1].values.name = rename[sparse.values.name]
    for inner in branch.node:
        opened = onnx.NodeProto()
        opened.CopyFrom(inner)
        opened.output[:] = [rename.get(n, n) for n in inner.output]
        _rename_reads(opened, rename)
        yield opened
    for name, result in copies:
        yield onnx.helper.make_node("Identity", [rename.get(name, name)], [result])


def _free(name: str, node: onnx.NodeProto, used: set[str]) -> str:
    """`name` if this branch alone uses it: names are counted once per model, so a name used elsewhere gets a suffix."""
    stem, count = name, 0
    while name in used:
        count += 1
        name = f"{stem}/{count}"
    used.add(name)
    return name


def _rename_reads(node: onnx.NodeProto, rename: Mapping[str, str]) -> None:
    node.input[:] = [rename.get(n, n) for n in node.input]
    for body in bodies(node):
        own = {i.name for i in body.input} | {t.name for t in body.initializer} | {s.values.name for s in body.sparse_initializer}
        own |= {n for inner in body.node for n in inner.output}
        here = {old: new for old, new in rename.items() if old not in own}
        for inner in body.node:
            _rename_reads(inner, here)
        for output in body.output:
            output.name = here.get(output.name, output.name)
