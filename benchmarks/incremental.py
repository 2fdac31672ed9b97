"""`python -m benchmarks.incremental [KIND…] [--subjects 1,2,…] [--choose]`: a person the model never saw, another wrist.

The protocol is benchmarks.watch's. Everything learns through edgeengine.training.Learner, from a bundle, with at most 1 MB of
stored samples; time is the processor time of the whole process while it learns, all its threads together.

One setting of each method for all ten subjects, by the rule of benchmarks.choosing, which sees the last half of no recording.
`--choose` prints its table, marks what it chooses and says whether that is what stands here; it is run again when a candidate
is added, and what it chooses is written here whatever the test then says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks import watch
from benchmarks.watch import NEW_HOP, OLD_HOP, TESTING, Stage
from edgeengine.bundle import Bundle
from edgeengine.gradients import Request, build_trainable
from edgeengine.training import inference_session
from edgeengine.training.learner import Learner, Settings
from edgeengine.training.methods import Rehearsal
from edgeengine.training.ridge import predictions
from edgeengine_converters.watch.data import Windows

HEAD = Settings(method="head", weights=(("user", 2.0),), ridge=1e-3)
GRADIENTS = Settings(
    method="gradients",
    steps_per_sample=0.25,
    rehearsal=Rehearsal(new=8, old=24, among=64, lr=5e-4, average=0.95, blend=0.7),
)
LESSON = 5  # windows that arrive together
KINDS = ("head", "gradients", "plain", "stream", "stream-plain")


def plain(settings: Settings) -> Settings:
    """The same steps without rehearsal (r = 0), averages and blending."""
    mixed = settings.rehearsal
    alone = replace(mixed, new=mixed.new + mixed.old, old=0, average=0.0, blend=1.0)
    return replace(settings, rehearsal=alone)


@dataclass
class Row:
    """One way to learn, over subjects: per cent right on the new person, points lost on the old ones; seconds of one core."""

    name: str
    new: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    published: list[bool] = field(default_factory=list)

    def add(self, new: float, lost: float, seconds: float, passed: bool) -> None:
        self.new.append(new)
        self.lost.append(lost)
        self.seconds.append(seconds)
        self.published.append(passed)

    def text(self) -> str:
        text = f"{self.name:34} new {np.mean(self.new):6.2f} / {min(self.new):6.2f}"
        if self.lost:
            text += f"   old lose {np.mean(self.lost):5.2f} / {max(self.lost):5.2f}"
        if self.seconds:
            text += f"   {np.mean(self.seconds):5.2f} s (at most {max(self.seconds):.2f})"
            text += f"   guard let {sum(self.published)} of {len(self.published)} pass"
        return text


def accuracy(session: ort.InferenceSession, windows: Windows) -> float:
    return 100 * float(np.mean(predictions(session, "logits", {"window": windows.values}) == windows.labels))


def bundle_of(model: Path, folder: Path) -> Bundle:
    return build_trainable(model, folder / f"{model.stem}.edge", Request(train="all", optimizer="adamw"), parts=1)


def shuffled(windows: Windows, seed: int = 0) -> Windows:
    order = np.random.default_rng(seed).permutation(len(windows))
    return Windows(windows.values[order], windows.labels[order])


def in_lessons(windows: Windows, size: int) -> Iterator[Windows]:
    for at in range(0, len(windows), size):
        yield Windows(windows.values[at : at + size], windows.labels[at : at + size])


def learned(bundle: Bundle, state: Path, settings: Settings, old: Windows, new: Windows, lesson: int) -> tuple[Learner, float]:
    """A learner that knows `old` and was shown `new` in lessons, and the seconds that this took."""
    learner = Learner(bundle, state, settings)
    known = shuffled(old)
    learner.learn({"window": known.values}, known.labels, domain="old", known=True)
    while learner.busy:
        learner.step()
    learner.checkpoint()
    begun = time.process_time()
    for part in in_lessons(new, lesson):
        learner.learn({"window": part.values}, part.labels)
        while learner.busy:
            learner.step()
    return learner, time.process_time() - begun


@dataclass(frozen=True)
class Case:
    """One subject's data at a stage: the base that never saw it, what is known, what adapts, and what measures."""

    bundle: Bundle
    known: Windows
    adapts: Windows
    new: Windows
    old: Windows

    @staticmethod
    def of(subject: int, stage: Stage, folder: Path) -> Case:
        others, mine = watch.old_of(subject), watch.of(subject)
        return Case(
            bundle_of(watch.base(subject, stage), folder),
            watch.windows(others, stage.knows, OLD_HOP),
            watch.windows(mine, stage.adapts, NEW_HOP),
            watch.windows(mine, stage.new, stage.hop),
            watch.windows(others, stage.old, stage.hop),
        )

    def lessons(self, kind: str) -> tuple[Windows, int]:
        """What is shown in which order, and how much at a time: a solved head takes all at once."""
        if kind.startswith("stream"):
            return self.adapts, LESSON
        return shuffled(self.adapts), len(self.adapts) if kind == "head" else LESSON


def subjects(chosen: Sequence[int], kinds: Sequence[str]) -> list[Row]:
    rows = {kind: Row(kind) for kind in ("none", *kinds)}
    settings = {"head": HEAD, "gradients": GRADIENTS, "stream": GRADIENTS}
    settings |= {"plain": plain(GRADIENTS), "stream-plain": plain(GRADIENTS)}
    with tempfile.TemporaryDirectory() as folder:
        for one in chosen:
            case = Case.of(one, TESTING, Path(folder))
            base = inference_session(case.bundle, {})
            before = accuracy(base, case.old)
            rows["none"].new.append(accuracy(base, case.new))
            for kind in kinds:
                lessons, size = case.lessons(kind)
                with tempfile.TemporaryDirectory() as state:
                    learner, seconds = learned(case.bundle, Path(state), settings[kind], case.known, lessons, size)
                    passed = learner.publish().verdict.passed
                    session = inference_session(case.bundle, learner.method.version())
                rows[kind].add(accuracy(session, case.new), before - accuracy(session, case.old), seconds, passed)
            _told(f"subject {one}", rows)
    return list(rows.values())


def _told(what: str, rows: dict[str, Row]) -> None:
    print(f"{what}: " + ", ".join(f"{n} {r.new[-1]:.2f}" for n, r in rows.items()), file=sys.stderr, flush=True)


def main() -> None:
    from benchmarks import choosing, wrist

    parser = argparse.ArgumentParser(prog="python -m benchmarks.incremental", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join((*KINDS, 'wrist'))} (default: all)")
    parser.add_argument("--subjects", default=",".join(map(str, watch.SUBJECTS)))
    parser.add_argument("--choose", action="store_true", help="choose settings instead, without the test half of anything")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    chosen = [int(s) for s in given.subjects.split(",")]
    kinds = given.kinds or [*KINDS, "wrist"]
    if given.choose:
        choosing.choose(chosen, kinds)
        if "wrist" in kinds:
            wrist.choose(chosen)
        return
    rows = []
    if set(kinds) != {"wrist"}:
        rows += subjects(chosen, [k for k in KINDS if k in kinds])
    if "wrist" in kinds:
        rows += wrist.wrists(chosen, TESTING)
    for row in rows:
        print(row.text())
    if given.json:
        given.json.write_text(json.dumps([vars(r) for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
