"""Who makes and who reads each tensor: the one view of a graph that cutting, costs and extraction share.

Nodes are identified by their index in the graph (names are optional and repeat), edges by tensor name, and "" (an
absent optional input or output) is never an edge. A node with bodies (If, Loop, Scan) reads every name its bodies
capture at any depth. Top-level Constant nodes are initializers, as they are for ONNX Runtime. A node that depends on no
run-time input is a constant node: it is copied into every subgraph that reads it and never crosses a boundary.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from edgeengine.errors import UserError
from edgeengine.graph.load import Model
from edgeengine.graph.quantized import private
from edgeengine.graph.tensors import bodies_of_attribute

# Never copied: two copies would draw different numbers.
RANDOM_OPS = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})


@dataclass(frozen=True)
class Dataflow:
    """Def-use of one model's top-level graph.

    `reads[i]` and `writes[i]` are the tensor names of node i, captured names included. `order` lists the live run-time
    nodes (those some graph output depends on) in a stable topological order; `constants` are the constant nodes, in
    `constant_order`. `initializers` includes the lifted Constant nodes. `readers[t]` are the live run-time nodes that
    read t. `nodes` are the model's, then copies of its shared dequantizers; `copies` maps the tensors these make to the
    model's own (see `quantized.py`).
    """

    model: Model
    nodes: tuple[onnx.NodeProto, ...]
    reads: tuple[tuple[str, ...], ...]
    writes: tuple[tuple[str, ...], ...]
    producer: dict[str, int]
    readers: dict[str, tuple[int, ...]]
    initializers: dict[str, onnx.TensorProto]
    sparse: dict[str, onnx.SparseTensorProto]
    constants: frozenset[int]
    constant_order: tuple[int, ...]
    order: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    copies: dict[str, str]

    def label(self, node: int) -> str:
        """How messages name a node: "Conv 'conv_1'", or "Conv #12" where it has no name."""
        n = self.nodes[node]
        return f"{n.op_type} {n.name!r}" if n.name else f"{n.op_type} #{node}"

    def is_runtime(self, tensor: str) -> bool:
        """Whether a tensor depends on a run-time input (and is not itself one)."""
        node = self.producer.get(tensor)
        return node is not None and node not in self.constants

    def rank(self, tensor: str) -> tuple[int, int]:
        """Sorts tensors: graph inputs in their order, then tensors in order of making."""
        node = self.producer.get(tensor)
        if node is None:
            return -1, self.inputs.index(tensor)
        return self.order.index(node), self.writes[node].index(tensor)

    def random_nodes(self) -> list[int]:
        return [i for i in self.order if is_random(self.nodes[i])]


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The graphs a control-flow node holds, in attribute order."""
    return [body for attribute in node.attribute for body in bodies_of_attribute(attribute)]


def walk(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Every node of a graph or function, and of the bodies inside, at any depth."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from walk(body.node)


def reads_of(node: onnx.NodeProto) -> tuple[str, ...]:
    """The names a node reads: its inputs and what its bodies capture, each once, in order of first appearance."""
    names = dict.fromkeys(name for name in node.input if name)
    for body in bodies(node):
        names.update(dict.fromkeys(_captured(body)))
    return tuple(names)


def analyze(model: Model) -> Dataflow:
    """Build the def-use view. Raises UserError when a tensor is made twice, read but never made, or part of a cycle."""
    graph = model.proto.graph
    outputs = tuple(o.name for o in graph.output)
    nodes, copies = private(graph.node, outputs)
    initializers = {t.name: t for t in graph.initializer}
    sparse = {s.values.name: s for s in graph.sparse_initializer}
    inputs = tuple(i.name for i in graph.input)

    producer: dict[str, int] = {}
    lifted: set[int] = set()
    for i, node in enumerate(nodes):
        value = _constant_value(node)
        if value is not None:
            initializers[value.name] = value
            lifted.add(i)
            continue
        for name in filter(None, node.output):
            if name in producer:
                raise UserError(f"{model.path}: tensor {name!r} is made by two nodes; export the model again")
            producer[name] = i
    reads = tuple(reads_of(n) for n in nodes)
    writes = tuple(tuple(name for name in n.output if name) for n in nodes)

    _check_known(model, nodes, reads, producer.keys() | initializers.keys() | sparse.keys() | set(inputs))
    before = {i: {producer[t] for t in reads[i] if t in producer} for i in range(len(nodes)) if i not in lifted}
    order = topological(before, f"{model.path}: its nodes form a cycle; export the model again")
    runtime: set[int] = set()
    for i in order:
        made = any(name in inputs or producer.get(name) in runtime for name in reads[i])
        if made or is_random(nodes[i]):
            runtime.add(i)
    live = _live(outputs, reads, producer)
    kept = tuple(i for i in order if i in runtime and i in live)
    readers: dict[str, list[int]] = {}
    for i in kept:
        for name in reads[i]:
            readers.setdefault(name, []).append(i)
    return Dataflow(
        model=model,
        nodes=nodes,
        reads=reads,
        writes=writes,
        producer=producer,
        readers={t: tuple(r) for t, r in readers.items()},
        initializers=initializers,
        sparse=sparse,
        constants=frozenset(i for i in order if i not in runtime),
        constant_order=tuple(i for i in order if i not in runtime),
        order=kept,
        inputs=inputs,
        outputs=outputs,
        copies=copies,
    )


def _check_known(model: Model, nodes: tuple[onnx.NodeProto, ...], reads: tuple[tuple[str, ...], ...], known: set[str]) -> None:
    for node, names in zip(nodes, reads, strict=True):
        for name in names:
            if name not in known:
                raise UserError(
                    f"{model.path}: node {node.op_type} {node.name!r} reads {name!r}, which nothing makes; export the model again"
                )
    for output in model.proto.graph.output:
        if output.name not in known:
            raise UserError(f"{model.path}: output {output.name!r} is made by no node; export the model again")


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    """Names a body takes from the graphs around it. A name used only as a body's output counts as well."""
    defined = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    defined |= {s.values.name for s in graph.sparse_initializer}
    defined |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in reads_of(node) if name not in defined)
    yield from (o.name for o in graph.output if o.name not in defined)


def is_random(node: onnx.NodeProto) -> bool:
    """Whether a node, or one inside its bodies, draws random numbers."""
    return any(n.op_type in RANDOM_OPS and n.domain in ("", "ai.onnx") for n in walk([node]))


def _constant_value(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor a Constant node stands for, named as its output; None for other nodes and for sparse values."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or not node.attribute:
        return None
    attribute = node.attribute[0]
    if attribute.name == "value":
        value = onnx.TensorProto()
        value.CopyFrom(attribute.t)
        value.name = node.output[0]
        return value
    simple: dict[str, Callable[[], Any]] = {
        "value_float": lambda: np.array(attribute.f, np.float32),
        "value_floats": lambda: np.array(attribute.floats, np.float32),
        "value_int": lambda: np.array(attribute.i, np.int64),
        "value_ints": lambda: np.array(attribute.ints, np.int64),
        "value_string": lambda: np.array(attribute.s.decode(), object),
        "value_strings": lambda: np.array([s.decode() for s in attribute.strings], object),
    }
    return numpy_helper.from_array(simple[attribute.name](), node.output[0]) if attribute.name in simple else None


def topological(before: dict[int, set[int]], cycle: str) -> tuple[int, ...]:
    """The keys of `before` (key -> keys that come first) in topological order, the smallest ready key first.

    So a sorted file keeps its own order. Raises UserError with the message `cycle` where there is none.
    """
    after: dict[int, list[int]] = {}
    missing = {}
    for i, sources in before.items():
        missing[i] = len(sources)
        for s in sources:
            after.setdefault(s, []).append(i)
    ready = [i for i, n in missing.items() if n == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in after.get(i, ()):
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, j)
    if len(order) != len(before):
        raise UserError(cycle)
    return tuple(order)


def _live(outputs: tuple[str, ...], reads: tuple[tuple[str, ...], ...], producer: dict[str, int]) -> set[int]:
    live: set[int] = set()
    todo = [producer[t] for t in outputs if t in producer]
    while todo:
        i = todo.pop()
        if i not in live:
            live.add(i)
            todo.extend(producer[t] for t in reads[i] if t in producer)
    return live
