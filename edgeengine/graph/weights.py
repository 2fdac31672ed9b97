"""Where initializers live: one `weights/base.bin` per bundle, laid out once, which every subgraph refers to.

Every floating-point initializer is external whatever its size, so that a trained version can override it by name; other
types are when they are large. Inline stay: what an operator's shape inference reads as data (ONNX Runtime refuses that
external), empty tensors, strings and sub-byte types. Bodies keep their tensors as they are, but what they had external
moves here too. Bytes are streamed from the source's data files; no weight file is ever held in memory.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from edgeengine.bundle import WEIGHTS
from edgeengine.graph.dataflow import Dataflow, bodies
from edgeengine.graph.dtypes import FLOATS
from edgeengine.graph.load import Model
from edgeengine.graph.tensors import ITEM_BYTES, copy_bytes, external_slice, is_external, nbytes, tensors_in, tensors_of

_T = onnx.TensorProto
_ALIGN_BYTES = 64
_CHUNK = 1 << 18  # elements looked at at a time
_PAGE_BYTES = 4096  # big tensors start on a page, so that they can be memory-mapped
_BIG_BYTES = 65536
_LARGE_INTEGER_BYTES = 1024  # smaller ones may be shapes and axes, which inference reads as data

# Inputs that an operator's shape inference reads as data, by position. Integer shapes and axes are inline by size.
_READ_AS_DATA = {
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Range": (0, 1, 2),
    "Pad": (1, 3),
    "OneHot": (1,),
    "TopK": (1,),
    "Tile": (1,),
    "Expand": (1,),
    "Reshape": (1,),
    "ConstantOfShape": (0,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
}


@dataclass
class _Layout:
    """Placed bytes in order: (offset, tensor)."""

    end: int = 0
    placed: list[tuple[int, onnx.TensorProto]] = field(default_factory=list)

    def place(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """Reserve room for a tensor; returns its reference into base.bin."""
        size = nbytes(tensor)
        align = _PAGE_BYTES if size >= _BIG_BYTES else _ALIGN_BYTES
        offset = -(-self.end // align) * align
        self.end = offset + size
        self.placed.append((offset, tensor))
        reference = _T(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=_T.EXTERNAL)
        for key, value in (("location", WEIGHTS), ("offset", str(offset)), ("length", str(size))):
            reference.external_data.add(key=key, value=value)
        return reference


@dataclass(frozen=True)
class Weights:
    """`initializers` are a model's top-level initializers as its subgraphs shall hold them, by name."""

    model: Model
    initializers: dict[str, onnx.TensorProto]
    layout: _Layout

    def write(self, root: Path) -> None:
        """Write base.bin under `root`, whole. Streams external data in chunks."""
        path = root / WEIGHTS
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for offset, tensor in self.layout.placed:
                out.write(b"\0" * (offset - out.tell()))
                copy_bytes(self.model.folder, tensor, out)

    def denormals(self, root: Path) -> dict[str, int]:
        """How many elements of each float32 and float64 weight in base.bin are denormal, by name, those without left out.

        A CPU converts float16 before it computes: what is small there is small no more.
        """
        found = {}
        for offset, tensor in self.layout.placed:
            if tensor.data_type in (_T.FLOAT, _T.DOUBLE) and nbytes(tensor):
                dtype = np.dtype("<f4" if tensor.data_type == _T.FLOAT else "<f8")
                values = np.memmap(root / WEIGHTS, dtype, "r", offset, (math.prod(tensor.dims),))
                small = np.finfo(dtype).tiny
                chunks = (np.abs(values[i : i + _CHUNK]) for i in range(0, len(values), _CHUNK))
                count = sum(int(np.count_nonzero((c > 0) & (c < small))) for c in chunks)
                if count:
                    found[tensor.name] = count
        return found

    def adopt(self, proto: onnx.ModelProto) -> None:
        """Redirect what bodies, attributes and functions of a subgraph had in the source's data files to base.bin."""
        for tensor in _nested_external(proto):
            reference = self.initializers.get(_nested_key(tensor))
            if reference is not None:
                tensor.ClearField("external_data")
                tensor.external_data.extend(reference.external_data)


def lay_out(flow: Dataflow, names: Iterable[str]) -> Weights:
    """Decide where each of the initializers `names` lives. Nothing is read or written yet."""
    pinned = _read_as_data(flow)
    layout = _Layout()
    held: dict[str, onnx.TensorProto] = {}
    for name in names:
        tensor = flow.initializers[name]
        if name not in pinned and _goes_external(tensor):
            held[name] = layout.place(tensor)
        else:
            held[name] = _inline(flow.model, tensor) if is_external(tensor) else tensor
    for tensor in _nested_external(flow.model.proto):
        key = _nested_key(tensor)
        if key not in held:
            held[key] = layout.place(tensor)
    return Weights(flow.model, held, layout)


def as_held(flow: Dataflow) -> Weights:
    """The initializers where the model has them, for subgraphs in the model's own folder."""
    return Weights(flow.model, dict(flow.initializers), _Layout())


def _goes_external(tensor: onnx.TensorProto) -> bool:
    size = nbytes(tensor) if tensor.data_type in ITEM_BYTES else 0
    return size > 0 and (tensor.data_type in FLOATS or size > _LARGE_INTEGER_BYTES)


def _inline(model: Model, tensor: onnx.TensorProto) -> onnx.TensorProto:
    data = io.BytesIO()
    copy_bytes(model.folder, tensor, data)
    return _T(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=data.getvalue())


def _nested_external(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """External tensors anywhere but in the top level's initializers (and Constant nodes, which the flow lifted)."""
    graph = proto.graph
    nested = [t for s in graph.sparse_initializer for t in (s.values, s.indices)]
    for node in (*graph.node, *(n for f in proto.functions for n in f.node)):
        nested.extend(tensors_of(node))
    return [t for t in nested if is_external(t)]


def _nested_key(tensor: onnx.TensorProto) -> str:
    """Bodies may repeat names, so their tensors are known by where their bytes were. No ONNX name holds a NUL."""
    return "\0{}:{}:{}".format(*external_slice(tensor))


def _read_as_data(flow: Dataflow) -> set[str]:
    """Top-level initializers that some node, at any depth and through local functions, reads as data for its shape."""
    functions = {(f.domain, f.name): f for f in flow.model.proto.functions}
    known: dict[tuple[str, str], tuple[int, ...]] = {}

    def positions(node: onnx.NodeProto) -> tuple[int, ...]:
        key = (node.domain, node.op_type)
        if key not in functions:
            return _READ_AS_DATA.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
        if key not in known:
            known[key] = ()
            read = names(functions[key].node)
            known[key] = tuple(i for i, formal in enumerate(functions[key].input) if formal in read)
        return known[key]

    def names(nodes: Iterable[onnx.NodeProto]) -> set[str]:
        found: set[str] = set()
        for node in nodes:
            found.update(node.input[i] for i in positions(node) if i < len(node.input))
            for body in bodies(node):
                found |= names(body.node)
        return found

    return names(flow.nodes)


def parameters(tensors: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]) -> tuple[int, int]:
    """(floating-point elements, bytes of all weights) of the initializers `tensors` and of the bodies of `nodes`."""
    every = [*tensors, *(t for n in nodes for b in bodies(n) for t in tensors_in(b))]
    elements = sum(math.prod(t.dims) for t in every if t.data_type in FLOATS)
    return elements, sum(nbytes(t) for t in every)
