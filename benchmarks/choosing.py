"""How the settings of benchmarks.incremental were chosen: by a rule fixed beforehand, on data that no test figure comes from.

The data are those of `watch.CHOOSING`: base models trained on the first 40 % of old subjects; the new person's first 30 %
adapts and the 20 % after that measures; what the old lose is measured on the 10 % that follows what the base has seen.

The rule, for each method: of the candidates that lose at most MARGINS points of the old, on average over subjects, the one with
the best accuracy on the new, on average over subjects; among those within TIE points of it the one that trains on the fewest
samples, and of these again the most accurate. For gradient steps both averages are over the shuffled order and the true one as
well: one setting for both. The margins are half of what a test may lose (0.5 points; 1.0 and 1.5 by order): the slice that
measures here is small, and the most accurate candidate is the one that luck has helped.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.incremental import GRADIENTS, HEAD, Case, accuracy, learned
from benchmarks.watch import CHOOSING
from edgeengine.training import inference_session
from edgeengine.training.learner import Learner, Settings, make_method
from edgeengine.training.methods import Rehearsal

MARGINS = {"head": 0.25, "gradients": 0.6}  # points; the other wrist's are in benchmarks.wrist
TIE = 0.25

HEADS = tuple(
    Settings(method="head", weights=(("user", weight),), ridge=ridge)
    for weight, ridge in product((1.0, 2.0, 3.0, 4.0, 6.0, 8.0), (1e-4, 1e-3, 1e-2))
)
MIXES = ((4, 28, 0.25), (8, 24, 0.25), (16, 16, 0.25), (4, 12, 0.5), (8, 24, 0.125))  # new, old, steps per sample
BLENDS = (0.5, 0.6, 0.7, 0.8, 1.0)
STEPS = tuple(
    Settings(method="gradients", steps_per_sample=steps, rehearsal=Rehearsal(new=new, old=old, among=64, lr=lr, average=0.95))
    for lr, (new, old, steps) in product((5e-4, 1e-3), MIXES)
)


@dataclass
class Score:
    """What became of one candidate, over subjects: per cent right on the new, points lost on the old."""

    settings: Settings
    new: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)

    @property
    def work(self) -> float:
        """Samples trained on per new one."""
        mixed = self.settings.rehearsal
        return self.settings.steps_per_sample * (mixed.new + mixed.old) if self.settings.method == "gradients" else 1.0

    def text(self) -> str:
        if self.settings.method == "head":
            what = f"weight {dict(self.settings.weights)['user']:g}, ridge {self.settings.ridge:g}"
        else:
            m = self.settings.rehearsal
            what = f"lr {m.lr:g}, {m.new} + {m.old}, {self.settings.steps_per_sample:g} steps a sample, blend {m.blend:g}"
        return (
            f"{what:50} new {np.mean(self.new):6.2f} / {min(self.new):6.2f}   "
            f"old lose {np.mean(self.lost):5.2f} / {max(self.lost):5.2f}"
        )


def best(scores: Sequence[Score], margin: float) -> Score:
    """The one that the rule takes; where all lose more than the margin, the one that loses least."""
    allowed = [s for s in scores if np.mean(s.lost) <= margin]
    if not allowed:
        return min(scores, key=lambda s: float(np.mean(s.lost)))
    most = max(float(np.mean(s.new)) for s in allowed)
    near = [s for s in allowed if np.mean(s.new) >= most - TIE]
    return min(near, key=lambda s: (s.work, -float(np.mean(s.new))))


def choose(subjects: Sequence[int], kinds: Sequence[str]) -> None:
    if "head" in kinds:
        show("head", _tried(subjects, HEADS[:1], ("head",), _heads), HEAD, MARGINS["head"])
    if {"gradients", "stream"} & set(kinds):
        scores = _tried(subjects, STEPS, ("gradients", "stream"), _blends)
        show("gradients", scores, GRADIENTS, MARGINS["gradients"])


def show(method: str, scores: Sequence[Score], stands: Settings, margin: float) -> None:
    """The table, what the rule takes of it, and whether that is what stands."""
    chosen = best(scores, margin)
    for score in sorted(scores, key=lambda s: -float(np.mean(s.new))):
        print(f"{'>' if score is chosen else ' '} {score.text()}")
    same = "" if chosen.settings == stands else f"; NOT what stands: {chosen.settings}"
    print(f"{method}: chosen {chosen.text()}{same}", flush=True)


def _tried(subjects: Sequence[int], candidates: Sequence[Settings], kinds: Sequence[str], variants) -> list[Score]:  # type: ignore[no-untyped-def]
    """Each candidate learns each subject in each order once; its variants differ in what is made of that."""
    scores: dict[str, Score] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = {one: Case.of(one, CHOOSING, Path(folder)) for one in subjects}
        before = {one: accuracy(inference_session(c.bundle, {}), c.old) for one, c in cases.items()}
        for candidate, (one, case), kind in product(candidates, cases.items(), kinds):
            lessons, size = case.lessons(kind)
            with tempfile.TemporaryDirectory() as state:
                learner, seconds = learned(case.bundle, Path(state), candidate, case.known, lessons, size)
                for settings, version in variants(learner):
                    score = scores.setdefault(repr(settings), Score(settings))
                    session = inference_session(case.bundle, version)
                    score.new.append(accuracy(session, case.new))
                    score.lost.append(before[one] - accuracy(session, case.old))
            print(f"{kind} of subject {one}: {score.text()}, {seconds:.2f} s", file=sys.stderr, flush=True)
    return list(scores.values())


def _heads(learner: Learner) -> Iterator[tuple[Settings, dict[str, np.ndarray]]]:
    """The sums know no weights: they are solved for each."""
    for settings in HEADS:
        method = make_method(learner.bundle, settings)
        method.restore(learner.method.tensors())
        yield settings, method.version()


def _blends(learner: Learner) -> Iterator[tuple[Settings, dict[str, np.ndarray]]]:
    for blend in BLENDS:
        settings = replace(learner.settings, rehearsal=replace(learner.settings.rehearsal, blend=blend))
        learner.method.settings = settings.rehearsal  # type: ignore[attr-defined]
        yield settings, learner.method.version()
