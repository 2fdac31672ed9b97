"""WitMotion WT901 inertial sensor: 11 bytes at 9600 to 115200 8N1.

0x55, type (0x51 acceleration, 0x52 angular rate, 0x53 angle), four little-endian int16 (three axes and a fourth that depends on
the type), checksum: the low byte of the sum of the ten before. Source: WitMotion's protocol description of the WT901.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from edgeengine.io.framing.base import INCOMPLETE, Damaged, Sample

# Full scales in g, degrees/s and degrees.
_KINDS = {0x51: ("acceleration", 16.0), 0x52: ("angular rate", 2000.0), 0x53: ("angle", 180.0)}
_TYPES = {kind: (code, scale) for code, (kind, scale) in _KINDS.items()}
_LENGTH = 11


class Wt901:
    name = "wt901"
    longest = _LENGTH
    channels: ClassVar[dict[str, tuple[str, ...]]] = {kind: ("x", "y", "z") for kind, _ in _KINDS.values()}
    modulus = 0

    def starts(self, byte: int) -> bool:
        return byte == 0x55

    def length(self, data: bytes) -> int:
        if len(data) > 1 and data[1] not in _KINDS:
            raise Damaged("unknown type")
        return _LENGTH if len(data) >= _LENGTH else INCOMPLETE

    def decode(self, frame: bytes) -> Sample:
        if sum(frame[:-1]) & 0xFF != frame[-1]:
            raise Damaged("checksum")
        kind, scale = _KINDS[frame[1]]
        x, y, z, _ = struct.unpack_from("<4h", frame, 2)
        return Sample(kind, (x / 32768 * scale, y / 32768 * scale, z / 32768 * scale))

    def encode(self, sample: Sample) -> bytes:
        code, scale = _TYPES[sample.kind]
        raw = [min(max(round(v / scale * 32768), -32768), 32767) for v in sample.values]
        body = struct.pack("<BB4h", 0x55, code, *raw, 0)
        return body + bytes([sum(body) & 0xFF])
