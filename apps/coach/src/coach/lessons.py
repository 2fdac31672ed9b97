"""What the coach shows the exercise model of somebody new, what it must not forget, and what it is examined on.

Per recording of the new person, by time: windows of the first 30 % teach, those of the last 50 % examine. Of the people the
model knows, windows of the first half stand for what it knew. No window crosses a border.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coach.exercises import WINDOW
from coach.recordings import Recording, load_recordings

TEACH_HOP, KNOWN_HOP, EXAMINE_HOP = 8, 64, 25
PEOPLE = range(1, 11)


@dataclass(frozen=True)
class Windows:
    """`values` float32 [count, 6, 128] in raw sensor units, `label` int64 [count]."""

    values: np.ndarray
    label: np.ndarray


def windows(recordings: Iterable[Recording], labels: Sequence[str], first: float, last: float, hop: int) -> Windows:
    """Windows of the share `first` to `last` of each recording's time, in order."""
    values, label = [], []
    for recording in recordings:
        count = len(recording.samples)
        part = recording.samples[round(count * first) : round(count * last)]
        for start in range(0, len(part) - WINDOW + 1, hop):
            values.append(part[start : start + WINDOW].T)
            label.append(labels.index(recording.label))
    return Windows(np.ascontiguousarray(values, np.float32), np.array(label, np.int64))


def teaching(recordings: Sequence[Recording], labels: Sequence[str]) -> Windows:
    return windows(recordings, labels, 0.0, 0.3, TEACH_HOP)


def examination(recordings: Sequence[Recording], labels: Sequence[str]) -> Windows:
    return windows(recordings, labels, 0.5, 1.0, EXAMINE_HOP)


def known(left_out: Sequence[int], labels: Sequence[str], cache: Path) -> Windows:
    """Windows of the people the model was trained on. Raises UserError as `load_recordings`."""
    people = [load_recordings(one, cache) for one in PEOPLE if one not in left_out]
    return windows([r for person in people for r in person], labels, 0.0, 0.5, KNOWN_HOP)
