"""An array as a microphone: silence before it, nothing after it, true to the time asked for."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.io import ArraySource, read_wav

MS = 1_000_000


def test_it_delivers_what_has_been_played() -> None:
    sound = np.arange(1, 101, dtype=np.float32)
    source = ArraySource(sound, 1000, input="x", window=4, fixed={"sr": np.array(1000)})
    for time_ns, expected in (
        (-5 * MS, [0, 0, 0, 0]), (0, [0, 0, 0, 0]), (2 * MS, [0, 0, 1, 2]), (4 * MS, [1, 2, 3, 4]),
        (4 * MS + 999_999, [1, 2, 3, 4]), (100 * MS, [97, 98, 99, 100]),
    ):  # fmt: skip
        read = source.read(0, time_ns)
        assert read["x"].shape == (1, 4) and read["x"].dtype == np.float32 and read["sr"] == 1000
        np.testing.assert_array_equal(read["x"][0], expected)
    assert source.length_ns == 100 * MS
    with pytest.raises(UserError, match=r"its 0\.10 s are over"):
        source.read(0, 101 * MS)


def test_channels_come_first() -> None:
    source = ArraySource(np.arange(20.0).reshape(10, 2), 1000, input="x", window=3)
    np.testing.assert_array_equal(source.read(0, 5 * MS)["x"], [[[4, 6, 8], [5, 7, 9]]])


def write_wav(file: Path, samples: np.ndarray, width: int = 2, channels: int = 1) -> Path:
    with wave.open(str(file), "wb") as wav:
        wav.setnchannels(channels)
        wav.setsampwidth(width)
        wav.setframerate(8000)
        wav.writeframes(samples.tobytes())
    return file


def test_wav_files(tmp_path: Path) -> None:
    mono, rate = read_wav(write_wav(tmp_path / "mono.wav", np.array([0, 16384, -32768], "<i2")))
    np.testing.assert_array_equal(mono, [0, 0.5, -1])
    stereo, _ = read_wav(write_wav(tmp_path / "two.wav", np.arange(8, dtype="<i2"), channels=2))
    assert rate == 8000 and mono.dtype == np.float32 and stereo.shape == (4, 2)
    with pytest.raises(UserError, match="8 bits per sample"):
        read_wav(write_wav(tmp_path / "eight.wav", np.zeros(4, "u1"), width=1))
    (tmp_path / "no.wav").write_bytes(b"RIFF no")
    for name in ("no.wav", "absent.wav"):
        with pytest.raises(UserError, match="cannot be read as WAV"):
            read_wav(tmp_path / name)


@pytest.mark.parametrize("bad", [{"samples": np.zeros(0)}, {"samples": np.zeros((2, 2, 2))}, {"rate_hz": 0}, {"window": 0}])
def test_what_cannot_be(bad: dict[str, object]) -> None:
    with pytest.raises(UserError, match="array source: need"):
        ArraySource(**({"samples": np.zeros(5), "rate_hz": 10, "input": "x", "window": 2} | bad))  # type: ignore[arg-type]
