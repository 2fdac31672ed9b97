"""The sound and its three sources: repeatable, gapless, in the shapes the real models take; and they react to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coach import packages, sound
from coach.audio import MUSIC_RATE_HZ, PITCH_INPUT, SPEECH_RATE_HZ, MelSource, PitchSource, SileroSource, Track
from coach.glue import mel_frames

MS = 1_000_000
Foreign = Callable[[packages.PackageFile], Path]
Open = Callable[[Path], Any]


def test_same_seed_same_sound(track: Track) -> None:
    again, other = Track(), Track(seed=8)
    for rate in (SPEECH_RATE_HZ, MUSIC_RATE_HZ):
        mine = track.newest(rate, 4000, 3000 * MS)
        np.testing.assert_array_equal(mine, again.newest(rate, 4000, 3000 * MS))
        assert not np.array_equal(mine, other.newest(rate, 4000, 3000 * MS))


@pytest.mark.parametrize("seed", [1, 7, 8])
def test_never_silent_never_clipped(seed: int) -> None:
    loop = sound.synthesize(seed)
    assert loop.dtype == np.float32 and len(loop) == sound.RATE_HZ * sound.SECONDS
    assert np.abs(loop).max() < 1
    assert all(np.abs(piece).max() > 1e-4 for piece in np.split(loop, sound.SECONDS * 50))


def test_both_rates_are_the_same_sound() -> None:
    loop = sound.synthesize(7)
    low = sound.resample(loop, SPEECH_RATE_HZ)
    assert len(low) == SPEECH_RATE_HZ * sound.SECONDS
    wanted, found = (np.fft.rfft(x)[: 7900 * sound.SECONDS] / len(x) for x in (loop, low))
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_the_loop_has_no_seam() -> None:
    loop = sound.synthesize(7)
    steps = np.abs(np.diff(loop, append=loop[0]))
    assert steps[-1] < 0.01 and steps[-1] < steps.max() / 5


def test_successive_reads_overlap(track: Track) -> None:
    silero, mel, pitch = SileroSource(track), MelSource(track), PitchSource(track)
    end_ms = 2 * sound.SECONDS * 1000
    for i in range(-40, end_ms // 32):
        before, after = (silero.read(j, j * 32 * MS)["input"] for j in (i, i + 1))
        np.testing.assert_array_equal(before[0, -64:], after[0, :64])
    for i in range(-40, end_ms // 80):
        before, after = (mel.read(j, j * 80 * MS)["input"] for j in (i, i + 1))
        np.testing.assert_array_equal(before[0, 1280:], after[0, :-1280])
    for i in range(-8, end_ms // 500):
        before, after = (pitch.read(j, j * 500 * MS)[PITCH_INPUT] for j in (i, i + 1))
        np.testing.assert_array_equal(before[0, 11025:], after[0, :-11025])


def test_reads_are_copies(track: Track) -> None:
    for source, name in (
        (SileroSource(track), "input"),
        (MelSource(track), "input"),
        (PitchSource(track), PITCH_INPUT),
    ):
        first = source.read(0, 0)[name]
        kept = first.copy()
        first[:] = 0
        np.testing.assert_array_equal(source.read(0, 0)[name], kept)
        assert kept.any() and kept.flags.c_contiguous


def _fits(session: Any, given: dict[str, np.ndarray], but: frozenset[str] = frozenset()) -> None:
    wanted = {i.name: i for i in session.get_inputs()}
    assert given.keys() == wanted.keys() - but
    for name, array in given.items():
        assert wanted[name].type == {"float32": "tensor(float)", "int64": "tensor(int64)"}[array.dtype.name]
        assert len(wanted[name].shape) == array.ndim
        pairs = zip(wanted[name].shape, array.shape, strict=True)
        assert all(w == n for w, n in pairs if isinstance(w, int))


def test_silero_hears_a_voice(track: Track, foreign: Foreign, open_session: Open) -> None:
    session = open_session(foreign(packages.SILERO))
    source = SileroSource(track)
    _fits(session, source.read(0, 0), frozenset({"state"}))
    state, said = np.zeros((2, 1, 128), np.float32), []
    for i in range(1, 10_000 // 32):
        probability, state = session.run(["output", "stateN"], source.read(i, i * 32 * MS) | {"state": state})
        said.append(float(probability[0, 0]))
    # It also tells the pauses from the voice: about three quarters of these ten seconds are speech.
    assert 0.6 < np.mean(np.array(said) > 0.5) < 0.9


def test_eight_frames_a_job_as_if_in_one_go(track: Track, foreign: Foreign, open_session: Open) -> None:
    mel, embedding = open_session(foreign(packages.MEL)), open_session(foreign(packages.EMBEDDING))
    source = MelSource(track)
    _fits(mel, source.read(0, 0))
    frames = []
    for i in range(-9, 1):
        (out,) = mel.run(["output"], source.read(i, i * 80 * MS))
        assert out.shape == (1, 1, 8, 32)
        frames.append(mel_frames({"input_1": out})["input_1"])
    window = np.concatenate(frames)
    (whole,) = mel.run(["output"], {"input": track.newest(SPEECH_RATE_HZ, 512 + 79 * 160, 0)[None]})
    np.testing.assert_allclose(window, mel_frames({"input_1": whole})["input_1"], atol=1e-3)
    (vector,) = embedding.run(None, {"input_1": window[-76:].reshape(1, 76, 32, 1)})
    assert vector.shape == (1, 1, 1, 96) and np.isfinite(vector).all() and vector.std() > 0.1


def test_pitch_finds_notes(track: Track, foreign: Foreign, open_session: Open) -> None:
    session = open_session(foreign(packages.PITCH))
    source = PitchSource(track)
    _fits(session, source.read(0, 0))
    (notes,) = session.run(["StatefulPartitionedCall:1"], source.read(4, 2000 * MS))
    # Column 0 is A0, MIDI 21: notes of the melody's scale, C4 to C5, are among the ones found.
    found = {21 + int(column) for column in np.flatnonzero(notes[0].max(0) > 0.5)}
    assert len(found & {60, 62, 64, 65, 67, 69, 71, 72}) >= 3
