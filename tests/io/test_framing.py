"""Framings and their reader: whatever happens to some bytes, every frame that they do not belong to comes out."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.io.framing import BUILT_IN, FrameReader, Framing, Sample, make_framing

NAMES = sorted(BUILT_IN)
LEVELS = {"wt901": 16.0, "cyton": 180_000.0, "lines": 1023.0, "cms50d+": 15.0, "cobs": 1e6}
# Half of a step on the wire, in the largest unit.
RESOLUTION = {"wt901": 2000 / 65536, "cyton": 0.02, "lines": 0.5, "cms50d+": 0.5, "cobs": 0.0}


def draw(framing: Framing, rng: random.Random, counter: int) -> Sample:
    kind = rng.choice(sorted(framing.channels))
    count = rng.randint(1, 8) if framing.name == "cobs" else len(framing.channels[kind])
    low = 0.0 if framing.name in ("lines", "cms50d+") else -LEVELS[framing.name]
    values = tuple(rng.uniform(low, LEVELS[framing.name]) for _ in range(count))
    return Sample(kind, values, counter % framing.modulus if framing.modulus else None)


def frames(framing: Framing, rng: random.Random, count: int) -> list[bytes]:
    return [framing.encode(draw(framing, rng, i)) for i in range(count)]


def before(framing: Framing) -> bytes:
    """What the line carries before the first frame we care for: the end of another."""
    return framing.encode(draw(framing, random.Random(99), 255))[-2:] if framing.name == "lines" else b""


def after(framing: Framing) -> bytes:
    """What it carries behind the last one: the beginning of another."""
    return framing.encode(draw(framing, random.Random(98), 9))[:1]


def decoded(framing: Framing, pieces: Iterable[bytes]) -> list[Sample]:
    reader = FrameReader(framing)
    return [a.sample for piece in pieces for a in reader.feed(piece, 0)]


def true_sample(framing: Framing, frame: bytes) -> Sample:
    """What the undamaged frame says, rounded as on the wire."""
    (sample,) = decoded(framing, [before(framing) + frame + after(framing)])
    return sample


def in_order(wanted: list[Sample], found: list[Sample]) -> bool:
    rest = iter(found)
    return all(any(w == f for f in rest) for w in wanted)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_encoded_is_decoded_in_any_pieces(name: str) -> None:
    framing, rng = make_framing(name), random.Random(1)
    samples = [draw(framing, rng, i) for i in range(50)]
    stream = before(framing) + b"".join(map(framing.encode, samples)) + after(framing)
    for size in (1, 2, 7, len(stream)):
        reader = FrameReader(framing)
        found = [a for i in range(0, len(stream), size) for a in reader.feed(stream[i : i + size], i)]
        assert [f.sample.kind for f in found] == [s.kind for s in samples]
        for f, s in zip(found, samples, strict=True):
            assert f.sample.counter == s.counter
            assert f.sample.values == pytest.approx(s.values, abs=RESOLUTION[name], rel=1e-6)
        assert [f.at_ns for f in found] == sorted(f.at_ns for f in found)
        assert not {k: n for k, n in reader.losses.items() if n and k != "before sync"}


@pytest.mark.parametrize("name", NAMES)
def test_one_fault_at_any_byte_costs_no_other_frame(name: str) -> None:
    """Frames A, B, C; every byte of each deleted, changed in every bit and altogether, or with others put before it."""
    framing, rng = make_framing(name), random.Random(2)
    for _ in range(3):
        three = frames(framing, rng, 3)
        truth = [true_sample(framing, f) for f in three]
        border = {f[0] for f in three} | {f[-1] for f in three} | {0x00, 0xFF, 0x31}
        for hit, frame in enumerate(three):
            for i, byte in enumerate(frame):
                changed = [bytes([byte ^ (1 << b)]) for b in range(8)] + [bytes([byte ^ 0xFF])]
                for put in [b"", *changed, *(bytes([extra, byte]) for extra in border)]:
                    stream = [*three[:hit], frame[:i] + put + frame[i + 1 :], *three[hit + 1 :]]
                    found = decoded(framing, [before(framing) + b"".join(stream) + after(framing)])
                    wanted = [t for k, t in enumerate(truth) if k != hit]
                    assert in_order(wanted, found), (hit, i, put, b"".join(three).hex())


def damaged(frame: bytes, rng: random.Random) -> bytes:
    """One byte deleted, one bit changed, or one byte put in."""
    i = rng.randrange(len(frame))
    put = rng.choice([b"", bytes([frame[i] ^ 1 << rng.randrange(8)]), bytes([rng.randrange(256), frame[i]])])
    return frame[:i] + put + frame[i + 1 :]


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.sampled_from(NAMES), st.integers(0, 1 << 30))
def test_frames_without_a_fault_come_out_of_a_long_line(name: str, seed: int) -> None:
    """Ten streams an example, any of their frames damaged, in pieces of any size."""
    framing, rng = make_framing(name), random.Random(seed)
    for _ in range(10):
        sent = frames(framing, rng, 5)
        hit = {k for k in range(5) if rng.random() < 0.3}
        truth = [true_sample(framing, f) for k, f in enumerate(sent) if k not in hit]
        stream = before(framing) + b"".join(damaged(f, rng) if k in hit else f for k, f in enumerate(sent)) + after(framing)
        cut = sorted(rng.randrange(len(stream)) for _ in range(rng.randrange(4)))
        pieces = [stream[a:b] for a, b in zip([0, *cut], [*cut, len(stream)], strict=True)]
        assert in_order(truth, decoded(framing, pieces)), (stream.hex(), hit)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.sampled_from(NAMES), st.binary(max_size=400))
def test_garbage_never_grows_the_buffer_nor_raises(name: str, garbage: bytes) -> None:
    framing = make_framing(name)
    reader = FrameReader(framing)
    for i in range(0, len(garbage), 13):
        reader.feed(garbage[i : i + 13], 0)
        assert len(reader._buffer) <= framing.longest
    reader.idle()
    assert not reader._buffer


@pytest.mark.parametrize("name", NAMES)
def test_the_first_partial_frame_is_dropped_and_counted(name: str) -> None:
    framing, rng = make_framing(name), random.Random(5)
    first, second = frames(framing, rng, 2)
    reader = FrameReader(framing)
    rest = first[len(first) // 2 :]
    found = reader.feed(rest + second + after(framing), 0)
    assert [f.sample for f in found] == [true_sample(framing, second)]
    assert reader.losses["before sync"] > 0 or name == "lines"


def test_losses_are_counted_by_kind() -> None:
    framing = make_framing("wt901")
    a, b, c = frames(framing, random.Random(3), 3)
    reader = FrameReader(framing)
    reader.feed(b"\x00\x01" + a + b[:5] + bytes([b[5] ^ 1]) + b[6:] + c, 0)
    assert (reader.frames, reader.losses["before sync"], reader.losses["checksum"]) == (2, 2, 1)
    assert reader.losses["skipped"] == 11
    cyton = make_framing("cyton")
    reader = FrameReader(cyton)
    for counter in (254, 255, 3, 4):
        reader.feed(cyton.encode(Sample("biosignal", (0.0,) * 8, counter)), 0)
    assert reader.losses["missing"] == 3
    reader.reopened()
    reader.feed(cyton.encode(Sample("biosignal", (0.0,) * 8, 100)), 0)
    assert (reader.losses["missing"], reader.frames) == (3, 5)


def test_an_idle_line_drops_what_was_begun() -> None:
    framing = make_framing("wt901")
    a, b = frames(framing, random.Random(4), 2)
    reader = FrameReader(framing)
    reader.feed(a + b[:6], 0)
    reader.idle()
    assert reader.losses["idle"] == 6
    assert len(reader.feed(b, 1)) == 1


def test_an_unknown_framing_names_those_there_are() -> None:
    with pytest.raises(UserError, match=r"unknown framing 'morse'; choose one of cms50d\+, cobs"):
        make_framing("morse")
