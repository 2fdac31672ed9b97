"""For own firmware: COBS (Cheshire and Baker, 1999) between zero bytes, little-endian float32 values, CRC-16/XMODEM.

A frame is 0x00, COBS(counter byte, values, CRC of both, big-endian), 0x00. COBS leaves no zero inside, so a zero is always a
border; there is one at each end, so that the loss of one joins no two frames. Decoding is the package cobs', the CRC binascii's.
"""

from __future__ import annotations

import binascii
import struct
from typing import ClassVar

from edgeengine.errors import UserError
from edgeengine.io.framing.base import INCOMPLETE, Damaged, Sample

_MOST_VALUES = 32


class CobsCrc:
    name = "cobs"
    longest = 2 + 1 + 4 * _MOST_VALUES + 2 + 1  # borders, counter, values, CRC, one byte of COBS overhead
    channels: ClassVar[dict[str, tuple[str, ...]]] = {"values": tuple(f"v{i}" for i in range(_MOST_VALUES))}
    modulus = 256

    def __init__(self) -> None:
        try:
            from cobs import cobs
        except ImportError as e:
            raise UserError("framing 'cobs' needs the package cobs: pip install 'edgeengine[serial]'") from e
        self._cobs = cobs

    def starts(self, byte: int) -> bool:
        return byte == 0

    def length(self, data: bytes) -> int:
        end = data.find(0, 1)
        if end == 1:
            raise Damaged  # two borders: this one closed a frame, the next opens one
        return end if end > 0 else INCOMPLETE

    def decode(self, frame: bytes) -> Sample:
        try:
            body = self._cobs.decode(frame[1:])
        except self._cobs.DecodeError as e:
            raise Damaged("no COBS") from e
        if len(body) < 3 or (len(body) - 3) % 4:
            raise Damaged("wrong length")
        if binascii.crc_hqx(body[:-2], 0) != int.from_bytes(body[-2:], "big"):
            raise Damaged("checksum")
        return Sample("values", struct.unpack(f"<{(len(body) - 3) // 4}f", body[1:-2]), body[0])

    def encode(self, sample: Sample) -> bytes:
        body = bytes([(sample.counter or 0) % 256]) + struct.pack(f"<{len(sample.values)}f", *sample.values)
        return b"\0" + bytes(self._cobs.encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "big"))) + b"\0"
