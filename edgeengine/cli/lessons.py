"""The demo's model learns the person who wears the watch, while it serves: what it is shown, and what came of it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeengine.cli.console import out

if TYPE_CHECKING:
    from edgeengine.bundle import Bundle
    from edgeengine.engine import Engine

LESSONS = 4  # spread over the first half of the run


class Lessons:
    """What the app knows is told at once, then the person's windows in LESSONS parts. `folder` is begun anew."""

    def __init__(self, show: Any, bundle: Bundle | None, folder: Path, seconds: float):
        from edgeengine.engine.learning import settings_of
        from edgeengine.training.learner import Learner
        from edgeengine.workload import load_workload

        assert bundle is not None
        self._show, self._seconds, self.folder = show, seconds, folder
        shutil.rmtree(folder, ignore_errors=True)
        learner = Learner(bundle, folder, settings_of(load_workload(show.workload))[show.learner])
        known = show.known()
        order = np.random.default_rng(0).permutation(len(known.label))
        learner.learn({"window": known.values[order]}, known.label[order], domain="known", known=True)
        learner.checkpoint()
        self._before, self._learner = self._accuracy(learner), learner

    def _accuracy(self, learner: Any) -> float:
        from edgeengine.training.ridge import predictions

        windows = self._show.examination
        found = predictions(learner.session, learner.output, {"window": windows.values})
        return float(np.mean(found == windows.label))

    def teach(self, engine: Engine) -> None:
        windows = self._show.lessons
        for part in np.array_split(np.random.default_rng(1).permutation(len(windows.label)), LESSONS):
            engine.learn(self._show.learner, {"window": windows.values[part]}, windows.label[part])
            time.sleep(self._seconds / 2 / LESSONS)
        self._learner = engine.learner(self._show.learner)

    def result(self) -> dict[str, object]:
        """Accuracy on windows that taught nothing, before and after; what was published, and what the guard measured."""
        learner = self._learner
        return {
            "windows": len(self._show.lessons.label),
            "steps": learner.method.steps,
            "accuracy_before": self._before,
            "accuracy_after": self._accuracy(learner),
            "serving": learner.serving,
            "versions": learner.versions,
        }


def print_learned(learned: dict[str, Any]) -> None:
    out.print(
        f"learned while it served: {learned['windows']} labelled windows of that person, "
        f"{len(learned['versions'])} versions published; "
        f"right on others of theirs {learned['accuracy_before']:.1%} before, {learned['accuracy_after']:.1%} after"
    )
