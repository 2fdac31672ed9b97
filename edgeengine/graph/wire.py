"""Read an ONNX file without its weights: large initializers become references into the file itself.

A parsed model holds its weights twice over (the bytes read, the message), and every rewrite copies them again. So the
file is walked as what it is, protobuf's wire format (a tag, then a value; length-delimited where it nests), down to
graph -> initializer -> raw_data, and what is large there is replaced by an external reference: location = the file's
own name, offset and length of the bytes. Only headers are touched, so a file of any size costs what its graph costs.
Source of the field numbers: onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Initializers with at least this much raw data are left in the file.
LARGE_BYTES = 65536

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 7, 5, 9, 13, 14


class _Field(NamedTuple):
    """Positions in the file: of the tag, of the value, behind the value."""

    number: int
    kind: int
    tag: int
    start: int
    stop: int


class WireError(ValueError):
    """The bytes are no protobuf message."""


def read_by_reference(file: Path, location: str) -> bytes:
    """The bytes of the model in `file`, its large initializers external at `location`.

    A file that is no protobuf comes back as it is: parsing it says what is wrong. Raises OSError.
    """
    with file.open("rb") as f:
        if not f.seek(0, 2):
            return b""
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return b"".join(_model(data, location))
            except WireError:
                return data[:]


def _model(data: mmap.mmap, location: str) -> Iterator[bytes]:
    for field in _fields(data, 0, len(data)):
        if (field.number, field.kind) == (_MODEL_GRAPH, _LENGTH):
            yield _message(_MODEL_GRAPH, b"".join(_graph(data, field, location)))
        else:
            yield data[field.tag : field.stop]


def _graph(data: mmap.mmap, graph: _Field, location: str) -> Iterator[bytes]:
    for field in _fields(data, graph.start, graph.stop):
        large = (field.number, field.kind) == (_GRAPH_INITIALIZER, _LENGTH) and field.stop - field.start >= LARGE_BYTES
        yield _tensor(data, field, location) if large else data[field.tag : field.stop]


def _tensor(data: mmap.mmap, tensor: _Field, location: str) -> bytes:
    fields = list(_fields(data, tensor.start, tensor.stop))
    raw = [f for f in fields if f.number == _TENSOR_RAW_DATA and f.stop - f.start >= LARGE_BYTES]
    if len(raw) != 1 or any(f.number == _TENSOR_EXTERNAL for f in fields):
        return data[tensor.tag : tensor.stop]
    kept = [data[f.tag : f.stop] for f in fields if f not in raw and f.number != _TENSOR_LOCATION]
    entries = (("location", location), ("offset", str(raw[0].start)), ("length", str(raw[0].stop - raw[0].start)))
    kept += [_message(_TENSOR_EXTERNAL, _message(1, k.encode()) + _message(2, v.encode())) for k, v in entries]
    return _message(_GRAPH_INITIALIZER, b"".join((*kept, _varint(_TENSOR_LOCATION << 3 | _VARINT), b"\x01")))


def _fields(data: mmap.mmap, at: int, stop: int) -> Iterator[_Field]:
    while at < stop:
        tag = at
        key, at = _read_varint(data, at, stop)
        number, kind = key >> 3, key & 7
        start = at
        if kind == _VARINT:
            _, at = _read_varint(data, at, stop)
        elif kind == _LENGTH:
            length, start = _read_varint(data, at, stop)
            at = start + length
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise WireError(f"wire type {kind}")
        if at > stop or not number:
            raise WireError("a field ends outside its message")
        yield _Field(number, kind, tag, start, at)


def _read_varint(data: mmap.mmap, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= stop or shift > 63:
            raise WireError("a number ends outside its message")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content
