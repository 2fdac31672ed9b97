"""Source `exercise`: which recording every window comes from, and from which half."""

from __future__ import annotations

import numpy as np
import pytest

from coach.exercises import WINDOW, ExerciseSource
from coach.recordings import RATE_HZ, Recording
from edgeengine.errors import UserError

LABELS = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
S = 1_000_000_000


def numbered(lengths: list[int]) -> list[Recording]:
    """Recordings whose samples say where they are from: channel 0 holds the label's number, 1 the row, 2 the side."""
    return [
        Recording(
            label, side, np.stack([np.full(n, k), np.arange(n), np.full(n, side), *[np.ones(n)] * 3], 1).astype("f4")
        )
        for k, (label, n) in enumerate(zip(LABELS, lengths, strict=True))
        for side in (0, 1)
    ]


LENGTHS = [947, 1000, 1001, 1500, 2618, 963, 2000]


@pytest.mark.parametrize("seconds", [0.001, 2.0, 10.0, 61.7])
@pytest.mark.parametrize("side", [0, 1])
def test_windows_are_whole_and_from_the_test_half(seconds: float, side: int) -> None:
    source = ExerciseSource(numbered(LENGTHS), LABELS, seconds, side)
    # Beyond the end too: a drained run may ask late, and a longer one begins again.
    for release_ns in range(0, int(2.5 * seconds * S), max(int(seconds * S) // 500, 1)):
        window = source.read(0, release_ns)["window"]
        assert window.shape == (1, 6, WINDOW) and window.dtype == np.float32 and window.flags.c_contiguous
        (k,) = set(window[0, 0])
        assert source.label_at(release_ns) == LABELS[int(k)]
        assert set(window[0, 2]) == {side}
        rows = window[0, 1]
        assert (np.diff(rows) == 1).all() and rows[0] >= LENGTHS[int(k)] // 2


def test_labels_switch_in_order_at_equal_times() -> None:
    source = ExerciseSource(numbered(LENGTHS), LABELS, seconds=7.0)
    assert [source.label_at(k * S) for k in range(8)] == [*LABELS, LABELS[0]]
    assert [source.label_at((k + 1) * S - 1) for k in range(7)] == list(LABELS)


def test_all_seven_are_seen_at_the_demos_pace() -> None:
    source = ExerciseSource(numbered(LENGTHS), LABELS)
    seen = [source.label_at(i * S // 2) for i in range(20)]
    assert {label: seen.count(label) for label in LABELS}.keys() == set(LABELS) and min(map(seen.count, LABELS)) >= 2


def test_runs_at_the_watchs_pace() -> None:
    source = ExerciseSource(numbered(LENGTHS), LABELS, seconds=10.0)
    first, later = (source.read(0, t)["window"][0, 1, -1] for t in (0, S))
    assert later - first == RATE_HZ
    # What came before the run is the same recording's past.
    before = source.read(-1, -S)["window"]
    assert set(before[0, 0]) == {0} and before[0, 1, -1] == first - RATE_HZ


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_seconds_must_be_positive(seconds: float) -> None:
    with pytest.raises(UserError, match="seconds"):
        ExerciseSource(numbered(LENGTHS), LABELS, seconds)


def test_refuses_what_it_cannot_replay() -> None:
    with pytest.raises(UserError, match="no recording of ROW on side 1"):
        ExerciseSource(numbered(LENGTHS)[:-1], LABELS)
    with pytest.raises(UserError, match="side 2"):
        ExerciseSource(numbered(LENGTHS), LABELS, side=2)
    with pytest.raises(UserError, match="holds 256 samples"):
        ExerciseSource(numbered([256] * 7), LABELS)


def test_real_recordings(recordings: list[Recording]) -> None:
    source = ExerciseSource(recordings, LABELS)
    for i in range(20):
        release_ns = i * S // 2
        rows = source.read(i, release_ns)["window"][0].T
        (mine,) = (r.samples for r in recordings if r.side == 1 and r.label == source.label_at(release_ns))
        half = mine[len(mine) // 2 :]
        assert any(np.array_equal(rows, half[j : j + WINDOW]) for j in range(len(half) - WINDOW + 1))
