"""What `python -m benchmarks.coach --check` calls a missed bar."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.coach import Run, missed

GOOD = Run("run", 100, {"met": 99, "late": 1}, 3.0, 20.0, 0.95, None, 0)


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        (0, {"outcomes": {"met": 99, "rejected": 1}}, "1 windows lost"),
        (0, {"p99_ms": 50.0}, "p99 50.0 ms"),
        (1, {"accuracy": 0.92}, "accuracy falls"),
        (2, {"resumed_s": 2.5}, "resumed after 2.5 s"),
        (2, {"resumed_s": None}, "resumed after None"),
        (2, {"stale": 1}, "1 decisions on stale data"),
    ],
)
def test_each_bar_can_be_missed(place: int, change: dict[str, Any], said: str) -> None:
    runs = [GOOD, GOOD, replace(GOOD, resumed_s=0.5)]
    assert missed(runs) == []
    runs[place] = replace(runs[place], **change)
    (line,) = missed(runs)
    assert said in line
