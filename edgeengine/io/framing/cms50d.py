"""Contec CMS50D+ pulse oximeter: 5 bytes at 19200 8O1, 60 frames a second; bit 7 is set in the first byte only.

Byte 0: signal strength (bits 0-3) and flags; 1: pleth wave; 2: bar graph (bits 0-3), bit 6 is bit 7 of the pulse rate; 3: pulse
rate, bits 0-6; 4: oxygen saturation. Source: the community's protocol notes on the CMS50D+.
"""

from __future__ import annotations

from typing import ClassVar

from edgeengine.io.framing.base import INCOMPLETE, Damaged, Sample

_LENGTH = 5


class Cms50d:
    name = "cms50d+"
    longest = _LENGTH
    channels: ClassVar[dict[str, tuple[str, ...]]] = {"oximetry": ("pleth", "pulse rate", "saturation", "signal")}
    modulus = 0

    def starts(self, byte: int) -> bool:
        return byte >= 0x80

    def length(self, data: bytes) -> int:
        if any(byte >= 0x80 for byte in data[1:_LENGTH]):
            raise Damaged("cut short")
        return _LENGTH if len(data) >= _LENGTH else INCOMPLETE

    def decode(self, frame: bytes) -> Sample:
        rate = frame[3] | (frame[2] & 0x40) << 1
        return Sample("oximetry", (float(frame[1]), float(rate), float(frame[4]), float(frame[0] & 0x0F)))

    def encode(self, sample: Sample) -> bytes:
        pleth, rate, saturation, signal = (round(v) for v in sample.values)
        return bytes([0x80 | signal & 0x0F, pleth & 0x7F, (rate >> 1) & 0x40, rate & 0x7F, saturation & 0x7F])
