"""The guide "Write an app" is this app, and it runs: who speaks is heard, who does not is not listened to."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import listen
import numpy as np
import pytest

from edgeengine.engine.prepare import Budget
from tests.models import model_file

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "write-an-app.md"
FILES = {"silero": "silero", "melspectrogram": "mel", "embedding": "embedding"}
LITTLE = Budget(0.1, 0.1, 0.1, 0.3)
SECONDS = 1.6


def blocks(language: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE.read_text(), flags=re.S | re.M)
    return [text for kind, text in every if kind == language]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundles, built as the guide says."""
    pytest.importorskip("onnx", reason="building bundles needs onnx")
    from edgeengine.cli.main import app

    made = tmp_path_factory.mktemp("listen")
    for model, name in FILES.items():
        shutil.copy(model_file(model), made / f"{name}.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        for line in "".join(blocks("")).splitlines():
            command, *arguments = shlex.split(line)
            assert command == "edgeengine"
            app(arguments, standalone_mode=False)
    return made


def test_the_guide_shows_this_app() -> None:
    source = Path(listen.__file__)
    assert blocks("python") == [source.read_text()]
    assert blocks("toml") == [(source.parent / "listen.toml").read_text()]
    assert len(source.read_text().splitlines()) <= 80


def test_every_step_is_heard_and_words_only_while_somebody_speaks(folder: Path) -> None:
    rng = np.random.default_rng(0)
    t = np.arange(round(SECONDS * listen.RATE_HZ)) / listen.RATE_HZ
    pulses = np.sin(2 * np.pi * 120 * t) > 0.95  # a glottis, and two formants
    sound = sum(np.convolve(pulses, np.exp(-60 * t[:800]) * np.sin(2 * np.pi * f * t[:800]))[: len(t)] for f in (500, 1500))
    sound = 0.3 * sound / np.abs(sound).max() * (1 + np.sin(2 * np.pi * 4 * t)) + rng.normal(0, 0.002, len(t))
    heard = listen.listen(sound.astype(np.float32), folder, LITTLE)
    assert [round(at / 0.032) for at, _ in heard.voice] == list(range(len(heard.voice)))
    groups = [heard.voice[i : i + listen.STEPS] for i in range(0, len(heard.voice) - listen.STEPS + 1, listen.STEPS)]
    spoken = sum(max(p for _, p in group) > 0.5 for group in groups)
    assert 1 <= len(heard.words) <= spoken
    assert all(word.shape == (96,) and np.isfinite(word).all() for _, word in heard.words)
    silence = listen.listen(np.zeros(len(t), np.float32), folder, LITTLE)
    assert not silence.words and len(silence.voice) == len(heard.voice)
