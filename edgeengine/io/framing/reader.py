"""One resynchronising reader for every framing.

It keeps its own buffer and gives out whole frames only. Where the bytes are no frame it moves on by ONE byte and looks again, so
that a lost, changed or added byte costs the frame it hits and no other. A frame is given out as soon as it is whole; if what
follows is not the start of another, its bytes are looked through again, since it may have been a false one that hides a true one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edgeengine.io.framing.base import INCOMPLETE, Damaged, Framing, Sample


@dataclass(frozen=True)
class Arrived:
    """A sample and when its last byte came (nanoseconds of the caller's clock)."""

    sample: Sample
    at_ns: int


class FrameReader:
    """Feed it bytes as they come. `losses` counts, by kind: "before sync" (bytes dropped after opening, until the first frame),
    "skipped" (bytes between frames later on), "idle" (bytes of a frame that never ended), "missing" (frames that the device's
    counter says were lost), and each kind of damage its framing knows.
    """

    def __init__(self, framing: Framing):
        self.framing = framing
        self.frames = 0
        self.losses: Counter[str] = Counter()
        self._buffer = bytearray()
        self._given_until = 0  # bytes of the buffer that belong to a frame already given out
        self._counter: int | None = None

    def feed(self, data: bytes, at_ns: int) -> list[Arrived]:
        """The frames that these bytes complete, in order."""
        self._buffer += data
        found: list[Arrived] = []
        while self._buffer:
            if self._given_until and not self._follows():
                break
            if not self._next(found, at_ns):
                break
        return found

    def _follows(self) -> bool:
        """Decide about the frame last given out. False while the byte behind it has not come."""
        if len(self._buffer) <= self._given_until:
            return False
        if self.framing.starts(self._buffer[self._given_until]):
            del self._buffer[: self._given_until]
        else:
            del self._buffer[:1]
        self._given_until = 0
        return True

    def _next(self, found: list[Arrived], at_ns: int) -> bool:
        """Take one step at the head of the buffer. False while more bytes are needed."""
        framing = self.framing
        if not framing.starts(self._buffer[0]):
            self._skip(1, "skipped")
            return True
        try:
            window = bytes(self._buffer[: framing.longest])
            length = framing.length(window)
            if length == INCOMPLETE:
                if len(self._buffer) < framing.longest:
                    return False
                raise Damaged("too long")
            sample = framing.decode(window[:length])
        except Damaged as damage:
            if str(damage):
                self.losses[str(damage)] += 1
                self._skip(1, "skipped")
            else:
                del self._buffer[:1]
            return True
        self._count(sample)
        found.append(Arrived(sample, at_ns))
        self._given_until = length
        return True

    def _skip(self, count: int, kind: str) -> None:
        del self._buffer[:count]
        self.losses[kind if self.frames else "before sync"] += count

    def _count(self, sample: Sample) -> None:
        self.frames += 1
        modulus = self.framing.modulus
        if modulus and sample.counter is not None:
            if self._counter is not None:
                self.losses["missing"] += (sample.counter - self._counter - 1) % modulus
            self._counter = sample.counter

    def idle(self) -> None:
        """Nothing came for longer than a frame takes: drop what was begun, it will not be finished."""
        if self._given_until:
            del self._buffer[: self._given_until]
            self._given_until = 0
        if self._buffer:
            self._skip(len(self._buffer), "idle")

    def reopened(self) -> None:
        """The port was closed and opened again: what was begun is void, and so is the first, partial frame to come."""
        self.idle()
        self._counter = None
