"""The smallest model there is, y = relu(x), to ask a provider whether it works at all. Written byte by byte: no onnx here.

The format is that of protocol buffers, the field numbers those of onnx.proto3 (ModelProto, GraphProto, NodeProto, …).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def smallest_model(folder: Path) -> Path:
    """The file, written into `folder` if it is not there."""
    file = folder / "relu.onnx"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=".", dir=folder)
        with os.fdopen(handle, "wb") as f:
            f.write(_model())
        os.replace(aside, file)
    return file


def _model() -> bytes:
    node = _bytes(1, b"x") + _bytes(2, b"y") + _bytes(3, b"relu") + _bytes(4, b"Relu")
    graph = _bytes(1, node) + _bytes(2, b"smallest") + _bytes(11, _tensor(b"x")) + _bytes(12, _tensor(b"y"))
    return _number(1, 8) + _bytes(8, _number(2, 17)) + _bytes(7, graph)  # IR version 8, opset 17


def _tensor(name: bytes) -> bytes:
    """ValueInfoProto: float32 of shape 1x4."""
    shape = b"".join(_bytes(1, _number(1, size)) for size in (1, 4))
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, 1) + _bytes(2, shape)))


def _number(field: int, value: int) -> bytes:
    assert 0 <= value < 128  # one byte of a varint
    return bytes([field << 3, value])


def _bytes(field: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes([field << 3 | 2, len(value)]) + value
