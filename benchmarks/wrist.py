"""The other wrist: a base that knows one wrist of everyone, and people who put the watch on the other; both ways.

Two readings, both shown. *Each*: one person at a time adapts, on the first 30 % of their recordings of that wrist. *All*: those
of all ten adapt one model. Either way every person is tested, so a mean and a worst are over twenty.

The two wrists are nearly mirror images, so signs on the six axes (`watch.MIRROR`) do much alone: they stand beside every figure.
What a sample counts in the head is chosen as in benchmarks.choosing, for learning alone and for learning under signs each.

*Chosen* signs are those of all 64 that make the base surest of the right classes of the person's adaptation windows, which it has
never seen (maximum likelihood): nobody tells it the mirror.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks import watch
from benchmarks.choosing import Score, show
from benchmarks.incremental import HEAD, Row, accuracy, bundle_of, learned, shuffled
from benchmarks.watch import CHOOSING, NEW_HOP, OLD_HOP, Stage
from edgeengine.bundle import Bundle
from edgeengine.training import inference_session
from edgeengine.training.learner import Learner, Settings, make_method
from edgeengine_converters.watch.data import Windows

MARGIN = 0.5  # points of the old wrist, half of what a test may lose
WEIGHTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
NONE = np.ones(len(watch.MIRROR), np.float32)
SIGNS = tuple(np.array(s, np.float32) for s in product((1, -1), repeat=len(watch.MIRROR)))


def signed(windows: Windows, signs: np.ndarray) -> Windows:
    return Windows(windows.values * signs[:, None], windows.labels)


def sureness(session: ort.InferenceSession, windows: Windows) -> float:
    """The mean logarithm of the probability of the right class."""
    logits = session.run(["logits"], {"window": windows.values})[0].astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    right = logits[np.arange(len(windows)), windows.labels]
    return float(np.mean(right - np.log(np.exp(logits).sum(1))))


def surest(session: ort.InferenceSession, windows: Windows) -> np.ndarray:
    """The signs under which the model is surest of the right classes."""
    few = Windows(windows.values[::4], windows.labels[::4])
    return max(SIGNS, key=lambda signs: sureness(session, signed(few, signs)))


def joined(parts: Sequence[Windows]) -> Windows:
    return Windows(np.concatenate([p.values for p in parts]), np.concatenate([p.labels for p in parts]))


@dataclass(frozen=True)
class Person:
    """One person's other wrist: what adapts, what measures, and the signs chosen for it."""

    adapts: Windows
    new: Windows
    signs: np.ndarray


@dataclass(frozen=True)
class Side:
    """A base that knows wrist `side` of everyone, and all people's other wrist."""

    bundle: Bundle
    known: Windows
    old: Windows
    people: tuple[Person, ...]

    @staticmethod
    def of(side: int, chosen: Sequence[int], stage: Stage, folder: Path) -> Side:
        bundle = bundle_of(watch.base_of_wrist(side, stage), folder)
        base = inference_session(bundle, {})
        seen, people = watch.of_wrist(side), []
        for one in chosen:
            mine = [r for r in watch.of(one) if r.side != side]
            adapts = watch.windows(mine, stage.adapts, NEW_HOP)
            people.append(Person(adapts, watch.windows(mine, stage.new, stage.hop), surest(base, adapts)))
        known, old = watch.windows(seen, stage.knows, OLD_HOP), watch.windows(seen, stage.old, stage.hop)
        return Side(bundle, known, old, tuple(people))


Signs = Callable[[Person], np.ndarray]
CHANGES: dict[str, Signs] = {"": lambda p: NONE, "flip + ": lambda p: watch.MIRROR, "chosen + ": lambda p: p.signs}


def weighted(weight: float) -> Settings:
    return replace(HEAD, weights=(("user", weight),))


SETTINGS = {"": weighted(8.0), "flip + ": weighted(16.0), "chosen + ": weighted(32.0)}


def lessons(side: Side, signs: Signs) -> Iterator[tuple[str, Windows, list[Person]]]:
    """What is learned, and who is tested after it: each person by themselves, then all together."""
    for person in side.people:
        yield "each", signed(person.adapts, signs(person)), [person]
    yield "all", joined([signed(p.adapts, signs(p)) for p in side.people]), list(side.people)


def taught(side: Side, settings: Settings, new: Windows, state: Path) -> tuple[Learner, float]:
    size = len(new) if settings.method == "head" else 5
    return learned(side.bundle, state, settings, side.known, shuffled(new), size)


def choose(chosen: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side.of(number, chosen, CHOOSING, Path(folder)) for number in watch.SIDES]
        for change, signs_of in CHANGES.items():
            scores = {weight: Score(weighted(weight)) for weight in WEIGHTS}
            for side in sides:
                before = accuracy(inference_session(side.bundle, {}), side.old)
                for person in side.people:
                    signs = signs_of(person)
                    with tempfile.TemporaryDirectory() as state:
                        learner, _ = taught(side, HEAD, signed(person.adapts, signs), Path(state))
                    for weight, score in scores.items():
                        method = make_method(side.bundle, weighted(weight))
                        method.restore(learner.method.tensors())
                        session = inference_session(side.bundle, method.version())
                        score.new.append(accuracy(session, signed(person.new, signs)))
                        score.lost.append(before - accuracy(session, side.old))
            show(f"other wrist: {change}head", list(scores.values()), SETTINGS[change], MARGIN)


def wrists(chosen: Sequence[int], stage: Stage) -> list[Row]:
    rows: dict[str, Row] = {}

    def row(name: str) -> Row:
        return rows.setdefault(name, Row(f"other wrist: {name}"))

    with tempfile.TemporaryDirectory() as folder:
        for number in watch.SIDES:
            side = Side.of(number, chosen, stage, Path(folder))
            base = inference_session(side.bundle, {})
            before = accuracy(base, side.old)
            for name, signs in (("none", NONE), ("flip", watch.MIRROR)):
                row(name).new.extend(accuracy(base, signed(p.new, signs)) for p in side.people)
            row("chosen signs").new.extend(accuracy(base, signed(p.new, p.signs)) for p in side.people)
            for change, signs_of in CHANGES.items():
                for who, new, tested in lessons(side, signs_of):
                    with tempfile.TemporaryDirectory() as state:
                        learner, seconds = taught(side, SETTINGS[change], new, Path(state))
                        passed = learner.publish().verdict.passed
                        session = inference_session(side.bundle, learner.method.version())
                    one = row(f"{change}head, {who}")
                    one.new.extend(accuracy(session, signed(p.new, signs_of(p))) for p in tested)
                    one.lost.append(before - accuracy(session, side.old))
                    one.seconds.append(seconds)
                    one.published.append(passed)
                print(f"wrist {number}: {change}head", file=sys.stderr, flush=True)
    return list(rows.values())
