"""Measures the classifier: leave one subject and the exercise partner out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgeengine_converters.watch.data import (
    PAIRS,
    partner_of,
    test_windows,
    tested_recordings,
    training_recordings,
)
from edgeengine_converters.watch.net import ExerciseNet
from edgeengine_converters.watch.source import Recordings
from edgeengine_converters.watch.train import Recipe, fit, logits

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Fold:
    """A network trained without two partners, and its accuracy on each of them, in per cent."""

    net: ExerciseNet
    accuracy: dict[int, float]


def leave_out(recordings: Recordings, subject: int, recipe: Recipe, progress: Progress | None = None) -> Fold:
    """Trains without `subject` and the partner, then tests on the second half of the recordings of both.

    Leaving out one subject removes the partner too, so both are measured with one training. `progress` is
    called with one line per epoch. Raises ConversionError for an unknown subject or one without recordings.
    """
    pair = tuple(sorted((subject, partner_of(subject))))
    tests = {one: test_windows(tested_recordings(recordings.items, one)) for one in pair}

    def tell(epoch: int, loss: float) -> None:
        if progress is not None:
            progress(f"without {pair[0]} and {pair[1]}: epoch {epoch}/{recipe.epochs}, loss {loss:.4f}")

    net = fit(training_recordings(recordings.items, subject), recipe, tell)
    accuracy = {
        one: 100.0 * float(np.mean(logits(net, windows.values).argmax(axis=1) == windows.labels))
        for one, windows in tests.items()
    }
    if progress is not None:
        progress("; ".join(f"subject {one}: {value:.1f} %" for one, value in accuracy.items()))
    return Fold(net, accuracy)


def leave_each_out(
    recordings: Recordings, recipe: Recipe, progress: Progress | None = None
) -> dict[int, Fold]:
    """`leave_out` for every pair of partners; gives the fold of each subject, subjects ascending."""
    folds: dict[int, Fold] = {}
    for first, second in PAIRS:
        folds[first] = folds[second] = leave_out(recordings, first, recipe, progress)
    return dict(sorted(folds.items()))
