"""The watch on the wrist of somebody who does all seven exercises, one after the other, during the run.

No window ever mixes two recordings: when the exercise changes, the watch's window changes with it, whole. Every window
of the run lies in the second half of its recording; the first half is what adapting to the person may learn from.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coach.recordings import RATE_HZ, Recording
from edgeengine.errors import UserError
from edgeengine.io import StreamReplay

WINDOW = 128
"""Samples the model sees: 2.56 s."""


@dataclass(frozen=True)
class _Stretch:
    label: str
    replay: StreamReplay
    length_ns: int  # the replay can give a window at 0 <= t < length_ns


class ExerciseSource:
    """Source `exercise`: {"window": float32 [1, 6, 128]}, raw sensor units, newest sample last.

    Of n exercises, exercise k is done during [k * seconds / n, (k + 1) * seconds / n), and then they begin again.
    Should a recording be shorter than its stretch, its second half is repeated; times before 0 reach back into the
    first recording.

    Args:
        recordings: of one person; those of `side` are replayed, one per label.
        labels: the order of the exercises.
        seconds: length of the run.
        side: wrist, 0 (left) or 1 (right).
    """

    def __init__(self, recordings: Sequence[Recording], labels: Sequence[str], seconds: float = 10.0, side: int = 1):
        if not (math.isfinite(seconds) and seconds > 0):
            raise UserError(f"exercise source: seconds must be a positive number, not {seconds}")
        by_label = {r.label: r.samples for r in recordings if r.side == side}
        absent = [label for label in labels if label not in by_label]
        if absent or not labels:
            raise UserError(
                f"exercise source: no recording of {', '.join(absent) or 'any label'} on side {side}; sides are 0, 1"
            )
        self._stretches = [_stretch(label, by_label[label]) for label in labels]
        self._run_ns = max(round(seconds * 1e9), len(labels))
        self._starts_ns = [k * self._run_ns // len(labels) for k in range(len(labels))]

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        """The newest 2.56 s at `release_ns`. Raises UserError only for times before the first recording began."""
        stretch, time_ns = self._at(release_ns)
        return {"window": np.ascontiguousarray(stretch.replay.window_at(time_ns).T)[None]}

    def label_at(self, release_ns: int) -> str:
        """The exercise that the window at `release_ns` shows."""
        return self._at(release_ns)[0].label

    def _at(self, release_ns: int) -> tuple[_Stretch, int]:
        """The stretch at `release_ns`, and the time within it."""
        if release_ns < 0:
            return self._stretches[0], release_ns
        time_ns = release_ns % self._run_ns
        k = bisect_right(self._starts_ns, time_ns) - 1
        return self._stretches[k], (time_ns - self._starts_ns[k]) % self._stretches[k].length_ns


def _stretch(label: str, samples: np.ndarray) -> _Stretch:
    # The first window is the first whole one of the second half, so that nothing of the first half is in it.
    start = len(samples) // 2 + WINDOW
    if start >= len(samples):
        raise UserError(
            f"exercise source: the recording of {label} holds {len(samples)} samples, needs more than {2 * WINDOW}"
        )
    length_ns = (len(samples) - start) * 1_000_000_000 // RATE_HZ
    return _Stretch(label, StreamReplay(samples.astype(np.float32, copy=False), RATE_HZ, WINDOW, start), length_ns)
