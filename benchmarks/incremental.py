"""`python -m benchmarks.incremental [head|gradients|stream|wrist …] [--subjects 1,2,…]`: a person the model never saw.

The protocol is benchmarks.watch's. Everything learns through edgeengine.training.Learner, from a bundle, with at most 1 MB of
stored samples; time is that of one core, spent on learning alone. Settings are the same for all subjects.
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
from edgeengine.bundle import Bundle
from edgeengine.gradients import Request, build_trainable
from edgeengine.training import inference_session
from edgeengine.training.learner import Learner, Settings
from edgeengine.training.methods import Rehearsal
from edgeengine.training.ridge import predictions
from edgeengine_converters.watch.data import Windows

HEAD = Settings(method="head", weights=(("user", 3.0),), ridge=1e-3)
GRADIENTS = Settings(
    method="gradients",
    steps_per_sample=0.25,
    rehearsal=Rehearsal(new=4, old=28, among=64, lr=1e-3, average=0.95, blend=0.7),
)
PLAIN = replace(GRADIENTS, rehearsal=replace(GRADIENTS.rehearsal, new=32, old=0, among=64))
WRIST = replace(HEAD, weights=(("user", 4.0),))
LEARN_HOP = 8
LESSON = 5  # windows that arrive together
KINDS = ("none", "head", "gradients", "plain", "stream", "stream-plain")


@dataclass
class Row:
    """One way to learn, over subjects: per cent right on the new person, before and after on the old ones; seconds."""

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

    def copy_last(self, other: Row) -> None:
        self.add(other.new[-1], other.lost[-1], other.seconds[-1], other.published[-1])

    def text(self) -> str:
        if not self.lost:
            return f"{self.name:34} new {np.mean(self.new):6.2f} / {min(self.new):6.2f}"
        return (
            f"{self.name:34} new {np.mean(self.new):6.2f} / {min(self.new):6.2f}   old lose {np.mean(self.lost):5.2f} /"
            f" {max(self.lost):5.2f}   {np.mean(self.seconds):5.2f} s (at most {max(self.seconds):.2f})"
            f"   guard let {sum(self.published)} of {len(self.published)} pass"
        )


def accuracy(session: ort.InferenceSession, windows: Windows) -> float:
    return 100 * float(np.mean(predictions(session, "logits", {"window": windows.values}) == windows.labels))


def sureness(session: ort.InferenceSession, windows: Windows) -> float:
    """The mean probability of the right class."""
    logits = session.run(["logits"], {"window": windows.values})[0].astype(np.float64)
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return float(np.mean(weights[np.arange(len(windows)), windows.labels] / weights.sum(1)))


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


def subject(one: int, kinds: Sequence[str], rows: dict[str, Row], folder: Path) -> None:
    bundle = bundle_of(watch.base(one), folder)
    others, mine = watch.old_of(one), watch.of(one)
    old, old_tests = watch.windows(others, watch.trains, watch.LEARN_HOP), watch.windows(others, watch.tests)
    new, chooses = watch.windows(mine, watch.adapts, LEARN_HOP), watch.windows(mine, watch.chooses, 10)
    tests = watch.windows(mine, watch.tests)
    base = inference_session(bundle, {})
    before = accuracy(base, old_tests)
    rows["none"].new.append(accuracy(base, tests))
    ways: dict[str, tuple[Settings, Windows, int]] = {
        "head": (HEAD, shuffled(new), len(new)),
        "gradients": (GRADIENTS, shuffled(new), LESSON),
        "plain": (PLAIN, shuffled(new), LESSON),
        "stream": (GRADIENTS, new, LESSON),
        "stream-plain": (PLAIN, new, LESSON),
    }
    for name in (k for k in kinds if k in ways):
        settings, lessons, size = ways[name]
        with tempfile.TemporaryDirectory() as state:
            learner, seconds = learned(bundle, Path(state), settings, old, lessons, size)
            passed = learner.publish().verdict.passed
            session = inference_session(bundle, learner.method.version())
        row = rows[name]
        row.add(accuracy(session, tests), before - accuracy(session, old_tests), seconds, passed)
        print(
            f"subject {one:2} {name:13} new {rows['none'].new[-1]:.2f} -> {row.new[-1]:.2f}, lost {row.lost[-1]:.2f}, "
            f"validation {accuracy(session, chooses):.2f}, {seconds:.2f} s, {'passes' if passed else 'refused'}",
            file=sys.stderr,
            flush=True,
        )


def subjects(chosen: Sequence[int], kinds: Sequence[str]) -> list[Row]:
    rows = {kind: Row(kind) for kind in ("none", *kinds)}
    with tempfile.TemporaryDirectory() as folder:
        for one in chosen:
            subject(one, kinds, rows, Path(folder))
    return list(rows.values())


# ---- the other wrist ----


def flipped(windows: Windows) -> Windows:
    return Windows(windows.values * watch.MIRROR[:, None], windows.labels)


def wrist(side: int, chosen: Sequence[int], rows: dict[str, Row], folder: Path) -> None:
    """The base knows one wrist of everyone; each person in turn puts the watch on the other.

    Whether to flip the signs is chosen by which is surer of the right class on the windows between, after learning.
    """
    bundle = bundle_of(watch.base_of_wrist(side), folder)
    known = [r for r in watch.recordings() if r.side == side]
    old, old_tests = watch.windows(known, watch.trains, watch.LEARN_HOP), watch.windows(known, watch.tests)
    base = inference_session(bundle, {})
    before = accuracy(base, old_tests)
    for one in chosen:
        mine = [r for r in watch.of(one) if r.side != side]
        new, tests = watch.windows(mine, watch.adapts, LEARN_HOP), watch.windows(mine, watch.tests)
        rows["none"].new.append(accuracy(base, tests))
        rows["flip"].new.append(accuracy(base, flipped(tests)))
        chooses = watch.windows(mine, watch.chooses, 10)
        found: dict[str, float] = {}
        for name, change in (("head", _as_it_is), ("flip + head", flipped)):
            with tempfile.TemporaryDirectory() as state:
                learner, seconds = learned(bundle, Path(state), WRIST, old, shuffled(change(new)), len(new))
                passed = learner.publish().verdict.passed
                session = inference_session(bundle, learner.method.version())
            found[name] = sureness(session, change(chooses))
            rows[name].add(accuracy(session, change(tests)), before - accuracy(session, old_tests), seconds, passed)
        rows["chosen + head"].copy_last(rows[max(found, key=found.__getitem__)])
        print(
            f"wrist {side} subject {one}: " + ", ".join(f"{n} {r.new[-1]:.2f}" for n, r in rows.items()),
            file=sys.stderr,
            flush=True,
        )


def _as_it_is(windows: Windows) -> Windows:
    return windows


def wrists(chosen: Sequence[int]) -> list[Row]:
    rows = {name: Row(f"other wrist: {name}") for name in ("none", "flip", "head", "flip + head", "chosen + head")}
    with tempfile.TemporaryDirectory() as folder:
        for side in (0, 1):
            wrist(side, chosen, rows, Path(folder))
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.incremental", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join((*KINDS[1:], 'wrist'))} (default: all)")
    parser.add_argument("--subjects", default=",".join(map(str, watch.SUBJECTS)))
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    chosen = [int(s) for s in given.subjects.split(",")]
    kinds = given.kinds or [*KINDS[1:], "wrist"]
    rows = []
    if set(kinds) != {"wrist"}:
        rows += subjects(chosen, [k for k in KINDS[1:] if k in kinds])
    if "wrist" in kinds:
        rows += wrists(chosen)
    for row in rows:
        print(row.text())
    if given.json:
        given.json.write_text(json.dumps([vars(r) for r in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
