"""Drift: a change is told soon, no change is not told."""

from __future__ import annotations

import numpy as np
import pytest

from edgeengine.training.drift import Drift, PageHinkley, confidence


def told_at(signal: np.ndarray) -> int | None:
    detector = PageHinkley()
    return next((i for i, v in enumerate(signal) if detector.update(float(v))), None)


def test_a_signal_that_stays_raises_few_alarms() -> None:
    rng = np.random.default_rng(0)
    alarms = sum(told_at(rng.normal(5, 2, 300)) is not None for _ in range(100))
    assert alarms <= 15


@pytest.mark.parametrize("shift", [-3.0, -1.5, 1.5, 3.0])
def test_a_change_either_way_is_told_soon(shift: float) -> None:
    rng = np.random.default_rng(1)
    late = []
    for _ in range(50):
        at = told_at(np.concatenate([rng.normal(0, 1, 80), rng.normal(shift, 1, 100)]))
        assert at is not None
        late.append(at - 80)
    assert np.median(late) <= 15 / (abs(shift) - 0.5) + 5


def test_a_value_that_is_not_finite_is_a_change() -> None:
    assert PageHinkley().update(float("nan"))


def test_inputs_and_confidence_are_watched() -> None:
    rng = np.random.default_rng(2)

    def first_change(scale: float, sure: float) -> str:
        drift = Drift()
        for i in range(160):
            later = i >= 80
            x = rng.normal(0, scale if later else 1, 200)
            logits = np.array([(sure if later else 4.0) + rng.normal(0, 0.3), 0.0, 0.0])
            if name := drift.saw({"x": x}, logits):
                return name
        return ""

    assert first_change(1, 4) == ""
    assert first_change(2, 4) == "spread of x"
    assert first_change(1, 1) == "confidence"


def test_confidence() -> None:
    assert confidence(np.array([[0.2, 0.8]])) == pytest.approx(0.8)
    assert confidence(np.array([0.0, np.log(3)])) == pytest.approx(0.75)
    assert np.isnan(confidence(np.array([np.nan, 1])))
