"""`python -m benchmarks.incremental_settings [head|gradients …]`: the settings of benchmarks.incremental, chosen without tests.

One setting for all subjects: the candidate with the largest mean, over the held-out subjects, of

    per cent right on the new person's 20 % between  -  what the old persons' 20 % between loses,

where the learner keeps windows of the old persons' first 30 % alone, so that their 20 % between is not stored (it is in what the
base was trained on, as all of the first half is). The last halves, new and old, are not looked at. Of candidates within .05 the
one of fewer steps. New windows come shuffled and, for gradients, in stream order as well: the score is the mean of both.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks import watch
from benchmarks.incremental import GRADIENTS, HEAD, LEARN_HOP, LESSON, accuracy, bundle_of, learned, shuffled
from edgeengine.bundle import Bundle
from edgeengine.training import inference_session
from edgeengine.training.learner import Settings
from edgeengine.training.methods import GradientSteps

NEAR = 0.05  # points that decide nothing
BLENDS = (0.5, 0.7, 1.0)
Name = str


def heads() -> Iterator[tuple[Name, Settings]]:
    for weight, ridge in product((1.0, 2.0, 3.0, 4.0, 6.0), (1e-4, 1e-3, 1e-2)):
        yield f"new samples count {weight:g}, ridge {ridge:g}", replace(HEAD, weights=(("user", weight),), ridge=ridge)


def gradients() -> Iterator[tuple[Name, Settings]]:
    """Ordered by steps, fewest first. How far to go towards the learned weights is tried on each without training again."""
    for steps, lr, (new, old) in product((0.125, 0.25), (5e-4, 1e-3, 2e-3), ((4, 28), (8, 24), (16, 16))):
        rehearsal = replace(GRADIENTS.rehearsal, lr=lr, new=new, old=old)
        yield (
            f"{steps:g} steps a sample, rate {lr:g}, {new} new + {old} old",
            replace(GRADIENTS, steps_per_sample=steps, rehearsal=rehearsal),
        )


def scores(one: int, bundle: Bundle, settings: Settings) -> dict[Name, float]:
    """The subject's share of the score, by blend ("" where there is none)."""
    others, mine = watch.old_of(one), watch.of(one)
    old, old_between = watch.windows(others, watch.adapts, watch.LEARN_HOP), watch.windows(others, watch.chooses)
    new, between = watch.windows(mine, watch.adapts, LEARN_HOP), watch.windows(mine, watch.chooses, 10)
    before = accuracy(inference_session(bundle, {}), old_between)
    head = settings.method == "head"
    found: dict[Name, list[float]] = {}
    for lessons in (shuffled(new),) if head else (shuffled(new), new):
        with tempfile.TemporaryDirectory() as state:
            learner, _ = learned(bundle, Path(state), settings, old, lessons, len(new) if head else LESSON)
            for blend in ("",) if head else map(str, BLENDS):
                if isinstance(learner.method, GradientSteps):
                    learner.method.settings = replace(learner.method.settings, blend=float(blend))
                session = inference_session(bundle, learner.method.version())
                lost = before - accuracy(session, old_between)
                found.setdefault(blend, []).append(accuracy(session, between) - lost)
    return {blend: float(np.mean(each)) for blend, each in found.items()}


def choose(candidates: Iterator[tuple[Name, Settings]]) -> list[tuple[float, Name]]:
    """(score, candidate), in the order given."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        bundles = {one: bundle_of(watch.base(one), Path(tempfile.mkdtemp(dir=folder))) for one in watch.SUBJECTS}
        for name, settings in candidates:
            each = [scores(one, bundle, settings) for one, bundle in bundles.items()]
            for blend in each[0]:
                label = name + (f", {blend} of the way" if blend else "")
                table.append((float(np.mean([s[blend] for s in each])), label))
                print(f"{table[-1][0]:7.3f}  {label}", file=sys.stderr, flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.incremental_settings", description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["head", "gradients"], metavar="KIND", help="head, gradients")
    for kind in parser.parse_args().kinds:
        table = choose({"head": heads, "gradients": gradients}[kind]())
        best = max(score for score, _ in table)
        score, name = next((s, n) for s, n in table if s >= best - NEAR)
        print(f"{kind}: {name} ({score:.3f}; best {best:.3f})")


if __name__ == "__main__":
    main()
