"""The emulated board: what goes in comes out of the framings, damage is seeded, an unplugged port comes back by its name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from coach.carriers import CARRIERS, carrier
from coach.damage import Damage
from coach.player import Manner, Player
from coach.recordings import Recording
from edgeengine.errors import UserError
from edgeengine.io.framing import FrameReader, make_framing

ROWS = np.random.default_rng(1).normal(0, 1, (200, 6)).astype(np.float32)
RECORDING = Recording("PEN", 1, ROWS)


class Wire:
    """A board that keeps what is sent, with the time, on a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s, self.plugged, self.unheard = 0.0, False, 0
        self.sent: list[tuple[float, bytes]] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def plug_in(self) -> None:
        self.plugged = True

    def unplug(self) -> None:
        self.plugged = False

    def send(self, data: bytes) -> None:
        if self.plugged:
            self.sent.append((self.now_s, data))

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.sent)


def play(framing: str, manner: Manner, seconds: float = 4.0, seed: int = 0) -> Wire:
    wire = Wire()
    Player(wire, framing, manner, np.random.default_rng(seed), now=wire.now, sleep=wire.sleep).play(
        [RECORDING], seconds
    )
    return wire


@pytest.mark.parametrize("framing", CARRIERS)
def test_every_framing_carries_every_row(framing: str) -> None:
    if framing == "cobs":
        pytest.importorskip("cobs")
    reader = FrameReader(make_framing(framing))
    got = [a.sample for a in reader.feed(play(framing, Manner()).data, 0)]
    sent = [s for i, row in enumerate(ROWS) for s in carrier(framing).samples(row, i)]
    lost = len(sent) - len(got)
    assert lost == (framing == "lines")  # the line in hand at opening may be the rest of one
    for mine, theirs in zip(sent[lost:], got, strict=True):
        assert mine.kind == theirs.kind
        # The coarsest wire is WT901's angular rate, 2000 / 32768 degrees a second, and whole numbers in lines and CMS50D+.
        assert np.allclose(mine.values, theirs.values, atol=0.51 if framing in ("lines", "cms50d+") else 0.07)


@pytest.mark.parametrize("speed", [1.0, 5.0])
def test_the_pace_is_the_recordings(speed: float) -> None:
    times = [at for at, _ in play("wt901", Manner(speed=speed)).sent]
    assert np.allclose(np.diff(times), 0.02 / speed)


def test_jitter_only_delays_and_split_loses_nothing() -> None:
    plain, mixed = play("wt901", Manner()), play("wt901", Manner(jitter_s=0.015, split=True))
    assert plain.data == mixed.data
    assert len(mixed.sent) > len(plain.sent)
    assert all(late >= 0 for late in np.diff([at for at, _ in mixed.sent]))


def test_unplugged_nothing_is_sent_and_garbage_follows_the_replug() -> None:
    wire = play("wt901", Manner(unplugs=((1.0, 1.0),), garbage_s=0.5))
    times = np.array([at for at, _ in wire.sent])
    assert not ((times >= 1.0) & (times < 2.0)).any()
    assert (times >= 2.0).any()
    reader = FrameReader(make_framing("wt901"))
    framed = [at for at, data in wire.sent if reader.feed(data, 0)]
    assert not [at for at in framed if at < 0.5 or 2.0 <= at < 2.5]
    assert [at for at in framed if at >= 2.5]


def test_damage_is_seeded_and_as_frequent_as_said() -> None:
    data = bytes(100_000)
    one, again, other = (Damage(0.01, np.random.default_rng(seed)).apply(data) for seed in (3, 3, 4))
    assert one == again != other
    assert Damage(0.0, np.random.default_rng(0)).apply(data) == data
    assert 400 < sum(byte != 0 for byte in one) < 900  # two of three mishaps show as another byte: 667 of 1,000


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_a_board_comes_back_under_its_name(tmp_path: Path) -> None:
    from coach.board import Board

    board = Board(tmp_path / "ttyUSB0", 115_200, np.random.default_rng(0))
    for message in (b"first", b"second"):
        board.plug_in()
        line = os.open(board.port, os.O_RDONLY | os.O_NOCTTY)
        board.send(message)
        assert os.read(line, 64) == message
        board.unplug()
        assert not board.port.is_symlink()
        os.close(line)
    with pytest.raises(UserError, match="no baud rate"):
        Board(tmp_path / "x", 12_345, np.random.default_rng(0))
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        Board(tmp_path / "taken", 9600, np.random.default_rng(0)).plug_in()
