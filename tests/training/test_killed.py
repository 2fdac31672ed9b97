"""kill -9 at random moments: what was acknowledged is there. EDGEENGINE_KILLS says how often (`make soak`: 200)."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.training.learner import Learner
from tests.training.killed import BATCH, batch
from tests.training.moons import METHODS, moons_bundle, shifted

KILLS = int(os.environ.get("EDGEENGINE_KILLS", "4"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return moons_bundle(tmp_path_factory.mktemp("moons"))


def killed_run(bundle: Bundle, state: Path, method: str, lines: int, delay_s: float) -> list[str]:
    """What the process said before it was killed, a moment after its `lines`th line."""
    command = [sys.executable, "-m", "tests.training.killed", str(bundle.path), str(state), method]
    said: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.strip())
            if len(said) == lines:
                threading.Timer(delay_s, process.kill).start()
    assert len(said) >= lines
    return said


def check_content(learner: Learner, deleted: set[int]) -> None:
    """Every sample is the one that was given under its number; what was deleted is not there."""
    kept = learner.samples.tensors()
    for slot in np.flatnonzero(kept["number"] >= 0).tolist():
        number = int(kept["number"][slot])
        inputs, label = batch(number // BATCH)
        np.testing.assert_array_equal(kept["input:x"][slot], inputs["x"][number % BATCH])
        assert kept["label"][slot] == label[number % BATCH] and number not in deleted


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_any_moment_nothing_acknowledged_is_lost(method: str, bundle: Bundle, tmp_path: Path) -> None:
    rng = random.Random(KILLS)
    samples = steps = 0
    serving, deleted = "", set[int]()
    for _ in range(-(-KILLS // len(METHODS))):
        said = killed_run(bundle, tmp_path, method, rng.randint(2, 30), rng.random() * 0.02)
        for what, value in (line.split(" ", 1) if " " in line else (line, "") for line in said):
            samples = int(value) if what == "sample" else samples
            steps = int(value) if what == "step" else steps
            serving = value if what == "version" else serving
            deleted |= {int(value)} if what == "deleted" else set()
        learner = Learner(bundle, tmp_path, METHODS[method])
        # Beyond what was said there may be at most the one thing under way.
        assert samples <= learner.samples.came <= samples + BATCH
        assert steps <= learner.method.steps <= steps + 1 or learner.method.takes_each
        taken_back = {v.name for v in learner.versions if v.cause}
        assert serving in {learner.serving, learner.disk.manifest.fallback, *taken_back}
        check_content(learner, deleted)
        samples, steps, serving = learner.samples.came, learner.method.steps, learner.serving
        learner.session.run(None, shifted(3, 1)[0])
        learner.close()  # the next process learns there
