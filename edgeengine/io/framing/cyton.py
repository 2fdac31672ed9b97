"""OpenBCI Cyton biosensing board: 33 bytes at 115200 8N1, 250 frames a second.

0xA0, counter, eight big-endian int24 channels, six auxiliary bytes, 0xC0 to 0xCF. There is no checksum and 0xA0 may occur in the
data: a frame is known by its header and footer. Source: OpenBCI's Cyton data format; a count is 4.5 V / 24 / (2^23 - 1).
"""

from __future__ import annotations

from typing import ClassVar

from edgeengine.io.framing.base import INCOMPLETE, Damaged, Sample

_LENGTH = 33
_COUNT_UV = 4.5e6 / 24 / 8388607  # one count at the default gain of 24


class Cyton:
    name = "cyton"
    longest = _LENGTH
    channels: ClassVar[dict[str, tuple[str, ...]]] = {"biosignal": tuple(f"ch{i}" for i in range(1, 9))}
    modulus = 256

    def starts(self, byte: int) -> bool:
        return byte == 0xA0

    def length(self, data: bytes) -> int:
        if len(data) < _LENGTH:
            return INCOMPLETE
        if data[_LENGTH - 1] & 0xF0 != 0xC0:
            raise Damaged("no footer")
        return _LENGTH

    def decode(self, frame: bytes) -> Sample:
        counts = (int.from_bytes(frame[i : i + 3], "big", signed=True) for i in range(2, 26, 3))
        return Sample("biosignal", tuple(c * _COUNT_UV for c in counts), frame[1])

    def encode(self, sample: Sample) -> bytes:
        counts = [min(max(round(v / _COUNT_UV), -(1 << 23)), (1 << 23) - 1) for v in sample.values]
        data = b"".join(c.to_bytes(3, "big", signed=True) for c in counts)
        return bytes([0xA0, (sample.counter or 0) % 256]) + data + bytes(6) + b"\xc0"
