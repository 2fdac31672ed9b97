"""The tensors a graph holds data in, at any depth, and where that data is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import onnx
from onnx import numpy_helper

_T = onnx.TensorProto
_CHUNK_BYTES = 1 << 20

ITEM_BYTES: dict[int, int] = {
    _T.FLOAT: 4, _T.DOUBLE: 8, _T.FLOAT16: 2, _T.BFLOAT16: 2, _T.INT8: 1, _T.INT16: 2, _T.INT32: 4, _T.INT64: 8,
    _T.UINT8: 1, _T.UINT16: 2, _T.UINT32: 4, _T.UINT64: 8, _T.BOOL: 1, _T.COMPLEX64: 8, _T.COMPLEX128: 16,
    _T.FLOAT8E4M3FN: 1, _T.FLOAT8E4M3FNUZ: 1, _T.FLOAT8E5M2: 1, _T.FLOAT8E5M2FNUZ: 1,
}  # fmt: skip


def tensors_in(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph that may hold data: initializers and node attributes, at any depth of nested bodies."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from tensors_of(node)


def tensors_of(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """Every tensor in the attributes of a node, at any depth."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        for s in (*sparse, *attribute.sparse_tensors):
            yield from (s.values, s.indices)
        for body in bodies_of_attribute(attribute):
            yield from tensors_in(body)


def bodies_of_attribute(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)


def is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def external_slice(tensor: onnx.TensorProto) -> tuple[str, int, int]:
    """(location, offset, length in bytes) of an external tensor; length -1 means to the end of the file."""
    entries = {e.key: e.value for e in tensor.external_data}
    return entries.get("location", ""), int(entries.get("offset") or 0), int(entries.get("length") or -1)


def nbytes(tensor: onnx.TensorProto) -> int:
    """Bytes of a tensor's elements, wherever they are; strings count their text."""
    if tensor.data_type == _T.STRING:
        return sum(len(s) for s in tensor.string_data)
    item = ITEM_BYTES.get(tensor.data_type)
    if item is not None:
        return int(math.prod(tensor.dims)) * item
    return external_slice(tensor)[2] if is_external(tensor) else max(len(tensor.raw_data), int(math.prod(tensor.dims)) // 2)


def copy_bytes(folder: Path, tensor: onnx.TensorProto, out: IO[bytes]) -> None:
    """Write the little-endian elements of a tensor to `out`, in chunks. `folder` is the model's own."""
    if not is_external(tensor):
        out.write(tensor.raw_data if tensor.HasField("raw_data") else numpy_helper.to_array(tensor).tobytes())
        return
    location, offset, _ = external_slice(tensor)
    left = nbytes(tensor)
    with (folder / location).open("rb") as source:
        source.seek(offset)
        while left:
            chunk = source.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise EOFError(f"{location} ended {left} bytes early")
            out.write(chunk)
            left -= len(chunk)
