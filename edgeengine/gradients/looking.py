"""Look at a model while it runs: the dtype and dimensions of every tensor, and the values that only depend on shapes.

It runs twice, with two batch sizes: what differs varies. So shapes are known also where static inference gives up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from edgeengine.errors import UserError
from edgeengine.gradients.tape import Dims
from edgeengine.graph.dtypes import FROM_ONNX, FROM_ORT
from edgeengine.graph.samples import draw
from edgeengine.graph.session import RUNTIME_ERRORS, create, first_line
from edgeengine.spec.tensor import TensorSpec

Shape = tuple[int, ...]

_SMALL = 4096  # elements; larger tensors that only depend on shapes are left to the run
_FROM_SHAPES_ALONE = frozenset({"Shape", "Size"})


@dataclass(frozen=True)
class Sizes:
    """Input shapes to run with, twice: `once` and `again`, equal where nothing may vary. `values` fixes some inputs' values."""

    once: dict[str, Shape]
    again: dict[str, Shape]
    values: Mapping[str, np.ndarray]

    @staticmethod
    def fixed(shapes: Mapping[str, Shape], values: Mapping[str, np.ndarray] | None = None) -> Sizes:
        return Sizes(dict(shapes), dict(shapes), values or {})

    def having(self, name: str, once: Shape, again: Shape) -> Sizes:
        """With one more input."""
        return Sizes(self.once | {name: once}, self.again | {name: again}, self.values)

    def dims(self, name: str) -> Dims:
        return _merged(self.once[name], self.again[name])


@dataclass(frozen=True)
class Look:
    """`dims` and `dtypes` of every tensor by name; `values` of those known before any run.

    `shapes` are the concrete shapes of computed tensors in both runs.
    """

    dims: dict[str, Dims]
    dtypes: dict[str, str]
    values: dict[str, np.ndarray]
    shapes: dict[str, tuple[Shape, Shape]]


def look(proto: onnx.ModelProto, sizes: Sizes) -> Look:
    """Run `proto` (its weights inside) at `sizes`. Raises UserError where ONNX Runtime refuses it."""
    graph = proto.graph
    held = {t.name: t for t in graph.initializer}
    specs = [TensorSpec(i.name, FROM_ONNX[i.type.tensor_type.elem_type], sizes.once[i.name]) for i in graph.input]
    names = [o for n in graph.node for o in n.output if o]
    twin = onnx.ModelProto()
    twin.CopyFrom(proto)
    del twin.graph.output[:], twin.graph.value_info[:]
    twin.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    try:
        session = create(twin.SerializeToString(), optimized=False)
        kinds = {o.name: o.type for o in session.get_outputs()}
        names = [n for n in names if kinds[n] in FROM_ORT]
        first, second = (
            dict(zip(names, session.run(names, draw(specs, shapes, sizes.values, run=0)), strict=True)) if names else {}
            for shapes in (sizes.once, sizes.again)
        )
    except RUNTIME_ERRORS as e:
        raise UserError(f"the working copy for training does not run: {first_line(e)}") from e
    dims: dict[str, Dims] = {s.name: sizes.dims(s.name) for s in specs}
    dtypes = {s.name: s.dtype for s in specs} | {n: FROM_ORT[kinds[n]] for n in names}
    dims |= {n: _merged(np.shape(first[n]), np.shape(second[n])) for n in names}
    for name, tensor in held.items():
        dims[name], dtypes[name] = tuple(tensor.dims), FROM_ONNX.get(tensor.data_type, "")
    known = _by_shapes_alone(graph)
    values = {n: np.asarray(first[n]) for n in names if n in known and _same(first[n], second[n])}
    shapes = {n: (np.shape(first[n]), np.shape(second[n])) for n in names}
    shapes |= {s.name: (sizes.once[s.name], sizes.again[s.name]) for s in specs}
    return Look(dims, dtypes, values, shapes)


def _merged(one: Shape, other: Shape) -> Dims:
    if len(one) != len(other):
        raise UserError("a tensor's rank depends on the batch size: fix the batch with --shape")
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _by_shapes_alone(graph: onnx.GraphProto) -> set[str]:
    """Tensors that follow from shapes and constants. Those that do not vary with the batch are constants for us."""
    known = {t.name for t in graph.initializer} | {""}
    found: set[str] = set()
    for node in graph.node:
        plain = node.domain in ("", "ai.onnx") and not any(a.HasField("g") or a.graphs for a in node.attribute)
        if not plain or node.op_type.startswith(("Random", "Multinomial", "Bernoulli")):
            continue
        if node.op_type in _FROM_SHAPES_ALONE or all(i in known for i in node.input):
            known.update(node.output)
            found.update(node.output)
    return found


def _same(one: object, other: object) -> bool:
    a, b = np.asarray(one), np.asarray(other)
    return a.size <= _SMALL and a.shape == b.shape and bool(np.array_equal(a, b))
