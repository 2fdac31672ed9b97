"""What a framing is: how one kind of device marks off its messages in a stream of bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

INCOMPLETE = 0


@dataclass(frozen=True)
class Sample:
    """What one frame says. `values` in the units the framing states, by channel of `kind`; `counter` numbers frames where the
    device does so, modulo `Framing.modulus`.
    """

    kind: str
    values: tuple[float, ...]
    counter: int | None = None


class Damaged(Exception):
    """No frame begins here. The message is the kind of damage, which the reader counts; without one the byte is a mere border."""


class Framing(Protocol):
    """One wire format. `longest` bounds a frame in bytes, so that a broken one cannot swallow what follows. `channels` names the
    values of each kind of sample. `modulus`: the counter's, 0 where frames carry none.
    """

    name: str
    longest: int
    channels: ClassVar[dict[str, tuple[str, ...]]]
    modulus: int

    def starts(self, byte: int) -> bool:
        """True if a frame can start with this byte."""
        ...

    def length(self, data: bytes) -> int:
        """Bytes of the frame that begins at data[0] (which `starts` accepted), INCOMPLETE while its end has not come.

        A border that may also open the next frame is not counted in.

        Raises Damaged when no frame can begin so.
        """
        ...

    def decode(self, frame: bytes) -> Sample:
        """Of a frame of the length said. Raises Damaged for a wrong checksum or impossible content."""
        ...

    def encode(self, sample: Sample) -> bytes:
        """The frame a device would send for it: for emulators and tests. Values are rounded to the wire's resolution."""
        ...
