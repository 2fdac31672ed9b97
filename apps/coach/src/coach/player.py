"""Recordings played to a board at their true pace, or faster."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from coach.board import Board
from coach.carriers import carrier
from coach.damage import Damage
from coach.recordings import RATE_HZ, Recording
from edgeengine.io.framing import make_framing


@dataclass(frozen=True)
class Manner:
    """How a board behaves. Times are seconds of the wall clock, whatever the speed.

    Attributes:
        speed: so many times faster than recorded.
        errors: share of the bytes that are lost, flipped or put in.
        jitter_s: each sample comes late by a time drawn evenly from 0 to it.
        garbage_s: after being plugged in the board sends garbage for so long.
        split: each sample comes in two writes, cut at random.
        unplugs: (at, for how long), counted from the start.
    """

    speed: float = 1.0
    errors: float = 0.0
    jitter_s: float = 0.0
    garbage_s: float = 0.0
    split: bool = False
    unplugs: tuple[tuple[float, float], ...] = ()


class Player:
    """Plays rows to `board`. `log` gets a JSON line for each recording that begins, unplugging and plugging in, with the
    monotonic time.
    """

    def __init__(
        self,
        board: Board,
        framing: str,
        manner: Manner,
        rng: np.random.Generator,
        log: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._board, self._framing, self._samples = board, make_framing(framing), carrier(framing).samples
        self._manner, self._rng, self._log = manner, rng, log
        self._damage = Damage(manner.errors, rng)
        self._now, self._sleep = now, sleep
        self._begun = self._garbage_until = 0.0
        self.played = 0

    def play(self, recordings: Sequence[Recording], seconds: float | None = None) -> None:
        """One recording after the other, over and over, for `seconds` of recorded time (None: without end)."""
        self._begun = self._now()
        self._plug_in()
        rows = _rows(recordings)
        for index, (first_of, row) in enumerate(rows):
            if seconds is not None and index >= round(seconds * RATE_HZ):
                break
            due = self._begun + index / (RATE_HZ * self._manner.speed) + self._rng.random() * self._manner.jitter_s
            self._wait(due)
            self._follow_unplugs()
            if first_of is not None:
                self._tell("recording", label=first_of.label, side=first_of.side)
            self._send(row, index)
            self.played += 1
        self._tell("end", unheard=self._board.unheard)
        self._board.unplug()

    def _send(self, row: np.ndarray, index: int) -> None:
        if self._now() < self._garbage_until:
            self._board.send(self._rng.bytes(24))
            return
        data = self._damage.apply(b"".join(self._framing.encode(s) for s in self._samples(row, index)))
        cut = int(self._rng.integers(len(data) + 1)) if self._manner.split else len(data)
        self._board.send(data[:cut])
        if cut < len(data):
            self._sleep(0.2 / (RATE_HZ * self._manner.speed))
            self._board.send(data[cut:])

    def _wait(self, due: float) -> None:
        left = due - self._now()
        if left > 0:
            self._sleep(left)

    def _follow_unplugs(self) -> None:
        since = self._now() - self._begun
        away = any(at <= since < at + length for at, length in self._manner.unplugs)
        if away and self._board.plugged:
            self._board.unplug()
            self._tell("unplugged")
        elif not away and not self._board.plugged:
            self._plug_in()

    def _plug_in(self) -> None:
        self._board.plug_in()
        self._garbage_until = self._now() + self._manner.garbage_s
        self._tell("plugged in")

    def _tell(self, event: str, **more: object) -> None:
        if self._log is not None:
            json.dump({"event": event, "at_s": self._now(), **more}, self._log)
            self._log.write("\n")
            self._log.flush()


def _rows(recordings: Sequence[Recording]) -> Iterator[tuple[Recording | None, np.ndarray]]:
    """Rows without end; with the first of each recording comes the recording."""
    for recording in itertools.cycle(recordings):
        for i, row in enumerate(recording.samples):
            yield (recording if i == 0 else None), row
