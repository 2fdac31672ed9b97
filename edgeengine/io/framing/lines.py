"""Lines of text as small sketches send them: one decimal number 0 to 1023 and CR LF, "!" while an electrode is off (AD8232).

A line is what stands between two end bytes, CR or LF: what comes first after opening may be the rest of a line and is left out,
and a lost end byte costs nothing. A damaged number that still is one cannot be told from a true one.
"""

from __future__ import annotations

from typing import ClassVar

from edgeengine.io.framing.base import INCOMPLETE, Damaged, Sample

_ENDS = b"\r\n"
_LARGEST = 1023


class Lines:
    name = "lines"
    longest = 8
    channels: ClassVar[dict[str, tuple[str, ...]]] = {"level": ("level",), "lead off": ()}
    modulus = 0

    def starts(self, byte: int) -> bool:
        return byte in _ENDS

    def length(self, data: bytes) -> int:
        end = next((i for i, byte in enumerate(data[1:], 1) if byte in _ENDS), INCOMPLETE)
        if end == 1:
            raise Damaged  # CR and LF: the line begins behind the second
        return end

    def decode(self, frame: bytes) -> Sample:
        text = frame[1:]
        if frame[0] == 0x0D and not text[:1].isdigit() and text != b"!":
            text = text[1:]  # a damaged LF
        if text == b"!":
            return Sample("lead off", ())
        if not text.isdigit() or int(text) > _LARGEST:
            raise Damaged("no number from 0 to 1023")
        return Sample("level", (float(text),))

    def encode(self, sample: Sample) -> bytes:
        return b"!\r\n" if sample.kind == "lead off" else b"%d\r\n" % min(max(round(sample.values[0]), 0), _LARGEST)
