"""Fix inputs of a model: they become constants, and every If whose condition follows from constants becomes its branch.

A branch that was inside one unit comes apart into many. The result is a model of its own, in a temporary folder;
verification compares it with the original fed the same values (see `verify.py`).
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from edgeengine.errors import UserError
from edgeengine.graph.child import run_in_child
from edgeengine.graph.dataflow import bodies, is_random, reads_of
from edgeengine.graph.fold import FoldJob
from edgeengine.graph.inline import inline, names_in
from edgeengine.graph.load import Model, load_model
from edgeengine.graph.shapes import check_values
from edgeengine.graph.sizes import dims_of
from edgeengine.graph.tensors import copy_bytes, is_external, nbytes, tensors_in, tensors_of
from edgeengine.spec.tensor import format_shape

_ALIGN_BYTES = 4096
_WEIGHTS = "weights.bin"

# What makes a tensor that depends on constants alone: a node, or the tensor itself.
Maker = onnx.NodeProto | onnx.TensorProto


@dataclass(frozen=True)
class _Decided:
    """An If whose condition is known: where it is, and the constants its condition comes from, in order."""

    graph: onnx.GraphProto
    position: int
    condition: str
    makers: tuple[Maker, ...]


@contextlib.contextmanager
def with_fixed(model: Model, values: Mapping[str, np.ndarray]) -> Iterator[Model]:
    """The model with the inputs `values` (name -> array) fixed, for as long as the block runs; itself where there are none.

    Raises UserError for unknown inputs and values that do not fit; errors from inside the block name the original file.
    """
    if not values:
        yield model
        return
    checked = fitting(model, values)
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as name:
        folder = Path(name)
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        path = folder / model.path.name
        try:
            _make_constant(proto.graph, checked)
            _fold(model, proto, folder)
            _save(model, proto, path)
        except OSError as e:
            raise UserError(f"{folder.parent}: cannot be written ({e}); free some space or set TMPDIR to another place") from e
        try:
            yield load_model(path)
        except UserError as e:
            if str(path) not in str(e):
                raise
            raise UserError(str(e).replace(str(path), str(model.path))) from e


def fitting(model: Model, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Input values in the dtype and shape the model declares; one number fits any shape of one element."""
    checked = check_values(model, values)
    for value in model.inputs:
        if value.name not in checked:
            continue
        array, dims = checked[value.name], dims_of(value)
        if dims is not None and array.shape == () and all(d == 1 or isinstance(d, str) for d in dims):
            checked[value.name] = array = array.reshape((1,) * len(dims))
        if dims is not None and (
            len(dims) != array.ndim or any(isinstance(d, int) and d != s for d, s in zip(dims, array.shape, strict=True))
        ):
            raise UserError(
                f"{model.path}: input {value.name!r} has shape {format_shape(dims)}, the value to fix it at has "
                f"{format_shape(array.shape)}"
            )
    return checked


def _make_constant(graph: onnx.GraphProto, values: Mapping[str, np.ndarray]) -> None:
    kept = [i for i in graph.input if i.name not in values]
    del graph.input[:]
    graph.input.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in values.items())


def _fold(model: Model, proto: onnx.ModelProto, folder: Path) -> None:
    """Inline every decided If until there is none; a branch may hold the next."""
    while decided := list(_decided(proto.graph, {})):
        files = []
        for i, what in enumerate(decided):
            file = folder / f"condition{i}.onnx"
            file.write_bytes(_condition(model, proto, what).SerializeToString())
            files.append(str(file))
        outcomes = run_in_child(FoldJob(str(model.path), tuple(files)), {}, tuple[bool, ...], str(model.path))
        used = names_in(proto.graph)
        by_graph: dict[int, tuple[onnx.GraphProto, dict[int, bool]]] = {}
        for what, outcome in zip(decided, outcomes, strict=True):
            by_graph.setdefault(id(what.graph), (what.graph, {}))[1][what.position] = outcome
        for graph, taken in by_graph.values():
            _forget(graph, taken, used)
            inline(graph, taken, used)


def _forget(graph: onnx.GraphProto, taken: Mapping[int, bool], used: set[str]) -> None:
    """Names that only the branches about to be opened define are free to keep."""
    inside: dict[str, int] = {}
    for position in taken:
        for body in bodies(graph.node[position]):
            own = {t.name for t in body.initializer} | {n for inner in body.node for n in inner.output}
            for name in own:
                inside[name] = inside.get(name, 0) + 1
    outside: set[str] = set()
    for position, node in enumerate(graph.node):
        outside.update(node.output)
        if position not in taken:
            outside.update(n for body in bodies(node) for n in names_in(body))
    used -= {name for name, count in inside.items() if count == 1 and name not in outside}


def _decided(graph: onnx.GraphProto, outer: Mapping[str, tuple[Maker, ...]]) -> Iterator[_Decided]:
    """The decided If nodes of a graph; where a node is decided its branches are not searched, they may go."""
    known = {name: makers for name, makers in outer.items() if name not in {i.name for i in graph.input}}
    known |= {t.name: (t,) for t in graph.initializer}
    for position, node in enumerate(graph.node):
        reads = reads_of(node)
        if all(name in known for name in reads) and not is_random(node):
            makers = dict.fromkeys(id(m) for name in reads for m in known[name])
            every = {id(m): m for name in reads for m in known[name]}
            chain = (*(every[i] for i in makers), node)
            known.update((name, chain) for name in node.output if name)
        if node.op_type == "If" and node.domain in ("", "ai.onnx") and node.input[0] in known:
            yield _Decided(graph, position, node.input[0], known[node.input[0]])
            continue
        for body in bodies(node):
            yield from _decided(body, known)


def _condition(model: Model, proto: onnx.ModelProto, what: _Decided) -> onnx.ModelProto:
    result = onnx.ModelProto(ir_version=proto.ir_version)
    result.opset_import.extend(proto.opset_import)
    result.functions.extend(proto.functions)
    result.graph.name = "condition"
    for maker in what.makers:
        if isinstance(maker, onnx.NodeProto):
            result.graph.node.add().CopyFrom(maker)
        else:
            result.graph.initializer.append(_inline(model, maker))
    for tensor in tensors_in(result.graph):
        if is_external(tensor):
            tensor.CopyFrom(_inline(model, tensor))
    result.graph.output.append(onnx.helper.make_tensor_value_info(what.condition, onnx.TensorProto.BOOL, None))
    return result


def _inline(model: Model, tensor: onnx.TensorProto) -> onnx.TensorProto:
    if not is_external(tensor):
        return tensor
    data = io.BytesIO()
    copy_bytes(model.folder, tensor, data)
    return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=data.getvalue())


def _save(model: Model, proto: onnx.ModelProto, path: Path) -> None:
    """Write the model and, beside it, the external bytes it still refers to."""
    with (path.parent / _WEIGHTS).open("wb") as out:
        tensors = [*tensors_in(proto.graph), *(t for f in proto.functions for n in f.node for t in tensors_of(n))]
        for tensor in tensors:
            if is_external(tensor):
                offset = -(-out.tell() // _ALIGN_BYTES) * _ALIGN_BYTES
                out.write(b"\0" * (offset - out.tell()))
                copy_bytes(model.folder, tensor, out)
                tensor.ClearField("external_data")
                for key, value in (("location", _WEIGHTS), ("offset", str(offset)), ("length", str(nbytes(tensor)))):
                    tensor.external_data.add(key=key, value=value)
    path.write_bytes(proto.SerializeToString(deterministic=True))
