"""Samples that came since the last checkpoint of their store: records appended and flushed, so that what was acknowledged stays.

A record is a header (magic, length, CRC-32 of what follows) and a safetensors blob. A record cut short by a kill is where the
journal ends: it was never acknowledged, and the next one is written over it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

_HEADER = struct.Struct("<4sII")
_MAGIC = b"EEj1"


class Journal:
    """`position` is its length in bytes, all of it whole records."""

    def __init__(self, file: Path, position: int = 0):
        self.file, self.position = file, position

    def append(self, arrays: Mapping[str, np.ndarray], text: str = "") -> None:
        """When this returns, the record is on the disk. Raises OSError where it cannot be written; then it is not there."""
        tensors = {n: np.asarray(a, order="C") for n, a in arrays.items()}
        raw = save({**tensors, "text": np.frombuffer(text.encode() or b"\0", np.uint8)})
        with self.file.open("r+b" if self.file.exists() else "wb") as f:
            f.truncate(self.position)
            f.seek(self.position)
            f.write(_HEADER.pack(_MAGIC, len(raw), zlib.crc32(raw)) + raw)
            f.flush()
            os.fsync(f.fileno())
        self.position += _HEADER.size + len(raw)

    def read(self, start: int = 0) -> list[tuple[dict[str, np.ndarray], str, int]]:
        """(arrays, text, the position behind it) of each whole record from `start` on; moves `position` behind the last."""
        raw = self.file.read_bytes() if self.file.exists() else b""
        found, at = [], start
        while (record := _record(raw, at)) is not None:
            at += _HEADER.size + len(record)
            tensors = load(record)
            text = tensors.pop("text").tobytes().rstrip(b"\0").decode()
            found.append((tensors, text, at))
        self.position = at
        return found


def _record(raw: bytes, at: int) -> bytes | None:
    """The record that begins at `at`; None where there is no whole one."""
    if at + _HEADER.size > len(raw):
        return None
    magic, length, crc = _HEADER.unpack_from(raw, at)
    body = raw[at + _HEADER.size : at + _HEADER.size + length]
    return body if magic == _MAGIC and len(body) == length and zlib.crc32(body) == crc else None
