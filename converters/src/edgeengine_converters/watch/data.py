"""Splits the recordings by time and by subject, and cuts them into windows. Needs numpy only.

Two rules keep what is measured apart from what is learnt:

- by time: the first half of each recording trains, the rest tests. Windows are cut after the split, so no
  sample is in both, and no window crosses the border of a recording.
- by subject: people who exercised together are left out together (`partner_of`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from edgeengine_converters.errors import ConversionError
from edgeengine_converters.watch.source import Recording

WINDOW = 128
TEST_HOP = 25
PAIRS = ((1, 2), (3, 4), (5, 6), (7, 10), (8, 9))
"""Subjects who exercised together, side by side, at the same pace."""

SPLIT_RULE = (
    "per recording by time: samples [0, n // 2) train, samples [n // 2, n) test; "
    f"test windows of {WINDOW} samples start every {TEST_HOP} samples from n // 2; "
    "the tested subject and the exercise partner are absent from training"
)


@dataclass(frozen=True)
class Windows:
    """`values` float32 [count, 6, length] in raw sensor units; `labels` int64 [count]."""

    values: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


def partner_of(subject: int) -> int:
    """Who exercised together with `subject`. Raises ConversionError for a subject who is not in `PAIRS`."""
    for first, second in PAIRS:
        if subject == first:
            return second
        if subject == second:
            return first
    known = ", ".join(str(one) for one in sorted(one for pair in PAIRS for one in pair))
    raise ConversionError("unknown subject", where=f"subject {subject}", fix=f"choose one of {known}")


def training_recordings(recordings: Iterable[Recording], subject: int) -> list[Recording]:
    """The recordings of everyone except `subject` and the partner, both wrists.

    Raises ConversionError for an unknown subject or when nobody else is left.
    """
    absent = {subject, partner_of(subject)}
    kept = [item for item in recordings if item.subject not in absent]
    if not kept:
        raise ConversionError(
            "no recording of anyone else", where=f"subject {subject}", fix="use the whole data set"
        )
    return kept


def tested_recordings(recordings: Iterable[Recording], subject: int) -> list[Recording]:
    """The recordings of `subject`, both wrists. Raises ConversionError when there is none."""
    kept = [item for item in recordings if item.subject == subject]
    if not kept:
        raise ConversionError("no recording", where=f"subject {subject}", fix="use the whole data set")
    return kept


def train_part(samples: np.ndarray) -> np.ndarray:
    """The first half of one recording: [n, 6] -> [n // 2, 6]."""
    return samples[: len(samples) // 2]


def test_part(samples: np.ndarray) -> np.ndarray:
    """The rest of one recording: [n, 6] -> [n - n // 2, 6]."""
    return samples[len(samples) // 2 :]


# pytest would otherwise collect the function wherever a test module imports it.
test_part.__test__ = False  # type: ignore[attr-defined]


def cut(samples: np.ndarray, length: int, hop: int) -> np.ndarray:
    """Every whole window: [n, channels] -> [count, channels, length], starts 0, hop, 2 * hop, ...

    A part shorter than `length` gives no window. Raises ConversionError when `length` or `hop` is below 1.
    """
    if length < 1 or hop < 1:
        raise ConversionError(f"length {length} and hop {hop}", where="cut", fix="use at least 1 for both")
    if len(samples) < length:
        return np.empty((0, samples.shape[1], length), samples.dtype)
    return np.lib.stride_tricks.sliding_window_view(samples, length, axis=0)[::hop].copy()


def train_windows(recordings: Iterable[Recording], length: int, hop: int) -> Windows:
    """Windows from the first half of each recording; longer than `WINDOW` leaves room to vary them."""
    return _gather(((train_part(item.samples), item.label) for item in recordings), length, hop)


def test_windows(recordings: Iterable[Recording]) -> Windows:
    """Windows of `WINDOW` samples, one each `TEST_HOP` samples, from the second half of each recording."""
    return _gather(((test_part(item.samples), item.label) for item in recordings), WINDOW, TEST_HOP)


test_windows.__test__ = False  # type: ignore[attr-defined]


def _gather(parts: Iterable[tuple[np.ndarray, int]], length: int, hop: int) -> Windows:
    pieces = [(cut(samples, length, hop), label) for samples, label in parts]
    if not any(len(values) for values, _ in pieces):
        raise ConversionError(
            f"no window of {length} samples", where="recordings", fix="use longer recordings"
        )
    values = np.concatenate([values for values, _ in pieces])
    labels = np.concatenate([np.full(len(values), label, np.int64) for values, label in pieces])
    return Windows(np.ascontiguousarray(values, dtype=np.float32), labels)
