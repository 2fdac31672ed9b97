"""What teaches, what is known and what examines: apart in time, whole windows, labelled as recorded."""

from __future__ import annotations

import numpy as np

from coach.exercises import WINDOW
from coach.lessons import EXAMINE_HOP, TEACH_HOP, examination, teaching
from coach.recordings import Recording

LABELS = ("PEN", "ABD")


def recording(label: str, count: int, start: int) -> Recording:
    """Samples that say when they were taken."""
    return Recording(label, 1, np.arange(start, start + count, dtype=np.float32)[:, None].repeat(6, axis=1))


def test_lessons_and_examination_share_no_sample() -> None:
    mine = [recording("ABD", 1000, 0), recording("PEN", 1500, 5000)]
    teach, examine = teaching(mine, LABELS), examination(mine, LABELS)
    assert not {*teach.values.ravel()} & {*examine.values.ravel()}
    assert teach.values.max() < 5000 + 450 and set(teach.label) == {0, 1}
    for windows, hop, spans in ((teach, TEACH_HOP, (300, 450)), (examine, EXAMINE_HOP, (500, 750))):
        assert windows.values.shape == (sum((n - WINDOW) // hop + 1 for n in spans), 6, WINDOW)
        assert (np.diff(windows.values, axis=2) == 1).all()
        for values, label in zip(windows.values, windows.label, strict=True):
            assert label == int(values[0, 0] < 5000)
