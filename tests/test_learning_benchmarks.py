"""The rules by which the learning benchmarks choose and measure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.choosing import TIE, Score, best
from benchmarks.stretches import Service, Stretch, service, slack_used
from edgeengine.events import Finished, LogLine
from edgeengine.training.learner import Settings
from edgeengine.training.methods import Rehearsal


def score(new: float, lost: float, steps: float = 0.25) -> Score:
    return Score(Settings(method="gradients", steps_per_sample=steps, rehearsal=Rehearsal()), [new], [lost])


def test_the_best_that_forgets_little_is_chosen_and_of_equals_the_cheaper() -> None:
    forgetful, good, cheap = score(99.0, 0.7), score(98.0, 0.2), score(98.0 - TIE / 2, 0.2, steps=0.125)
    assert best([forgetful, good], 0.5) is good
    assert best([forgetful, good, cheap], 0.5) is cheap
    assert best([forgetful, good, score(98.0 - 2 * TIE, 0.2, steps=0.125)], 0.5) is good
    assert best([forgetful, score(99.9, 0.9)], 0.5) is forgetful  # none is within the margin: the one that loses least


def job(name: str, index: int, release_ms: float, took_ms: float, outcome: str = "met") -> Any:
    finish = round((release_ms + took_ms) * 1e6) if outcome in ("met", "late") else None
    return SimpleNamespace(
        task=SimpleNamespace(name=name), index=index, release_ns=round(release_ms * 1e6), finish_ns=finish,
        outcome=outcome, finished=outcome in ("met", "late"),
    )  # fmt: skip


def test_jobs_count_where_they_were_released() -> None:
    stretches = [Stretch(0, 10**9, False), Stretch(10**9, 2 * 10**9, True)]
    jobs = [job("a", 0, 10, 1), job("a", 1, 20, 3), job("b", 0, 30, 9), job("a", 2, 1500, 2), job("a", 3, 1600, 0, "dropped")]
    found = service("a", jobs, stretches)
    assert [p.tolist() for p in found.off] == [[1.0, 3.0]] and [p.tolist() for p in found.on] == [[2.0]]
    assert (found.missed_on, found.missed_off) == (1, 0)
    assert found.limit(2.98) == pytest.approx(1.05 + 1.0)


def test_the_interval_holds_the_ratio_and_widens_where_stretches_differ() -> None:
    rng = np.random.default_rng(0)

    def parts(scale: np.ndarray) -> list[np.ndarray]:
        return [s * rng.gamma(9, 1, 200) for s in scale]

    even = Service("a", parts(np.full(12, 1.5)), parts(np.ones(12)), 0, 0)
    uneven = Service("a", parts(1.5 * rng.uniform(0.5, 2, 12)), parts(rng.uniform(0.5, 2, 12)), 0, 0)
    low, high = even.interval()
    assert low < 1.5 < high and low <= even.ratio() <= high
    wide = uneven.interval()
    assert wide[1] - wide[0] > 2 * (high - low)


def ran(task: str, index: int, end_ms: float, took_ms: float, processor: str = "cpu0") -> LogLine:
    return LogLine(Finished(round(end_ms * 1e6), task, index, "s", processor, "done", round(took_ms * 1e6)), [])


def test_the_share_of_the_slack_counts_committed_steps_inside_the_stretch() -> None:
    log = [
        ran("detect", 0, 30, 20), ran("wide", 0, 50, 10, "cpu-all"),
        ran("learn", 0, 40, 10, "cpu1"), ran("learn", 1, 60, 10, "cpu1"), ran("learn", 2, 105, 10, "cpu1"),
    ]  # fmt: skip
    jobs = [job("learn", 0, 0, 40), job("learn", 1, 40, 0, "dropped"), job("learn", 2, 95, 10)]
    cores = {"cpu0": 1, "cpu1": 1, "cpu-all": 2}
    share = slack_used(log, jobs, ["learn"], cores, [Stretch(0, 100_000_000, True)])
    assert share == pytest.approx((10 + 5) / (200 - 20 - 20))
    assert slack_used(log, jobs, ["learn"], cores, [Stretch(0, 10**9, False), Stretch(0, 100_000_000, True)]) == share
