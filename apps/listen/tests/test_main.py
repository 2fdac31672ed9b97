"""What `python -m listen` cannot play is one line, and exit code 2."""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import pytest
from listen.__main__ import main

BAD = {
    "no file": ([], "SOUND.wav"),
    "two files": (["a.wav", "b.wav"], "SOUND.wav"),
    "an option": (["--help"], "SOUND.wav"),
    "a file that is not there": (["none.wav"], "none.wav"),
    "no sound": (["text.wav"], "text.wav"),
    "another rate": (["fast.wav"], "44100 Hz"),
    "two channels": (["stereo.wav"], "2 channels"),
    "nothing in it": (["empty.wav"], "0 samples"),
    "no bundles beside it": (["good.wav"], "silero.edge"),
}


def write_wav(file: Path, channels: int, rate_hz: int, samples: int) -> None:
    with wave.open(str(file), "wb") as wav:
        wav.setparams((channels, 2, rate_hz, 0, "NONE", ""))
        wav.writeframes(bytes(2 * channels * samples))


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.wav").write_text("no sound")
    for name, *about in (("fast", 1, 44_100, 9), ("stereo", 2, 16_000, 9), ("empty", 1, 16_000, 0), ("good", 1, 16_000, 9)):
        write_wav(tmp_path / f"{name}.wav", *about)
    arguments, word = BAD[case]
    monkeypatch.setattr(sys, "argv", ["listen", *arguments])
    with pytest.raises(SystemExit) as e:
        main()
    said = capsys.readouterr()
    assert e.value.code == 2 and not said.out
    assert said.err.startswith("listen: ") and said.err.count("\n") == 1 and word in said.err
