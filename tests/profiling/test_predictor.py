"""Latencies predicted from a few: right where the machine is a roofline, unsure where nothing was measured."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.profiling import Configuration, Predictor
from tests.profiling.spaces import ALL, ONE, latency_ns, single, subgraphs

PARTS = subgraphs(16)
SPACE = [Configuration(s, p, b) for b in (1, 4) for p in (ONE, ALL) for s in PARTS]
TRUTH = np.array([latency_ns(c) for c in SPACE])


@pytest.fixture
def predictor() -> Predictor:
    pytest.importorskip("sklearn", reason="the extra fit is not installed")
    return Predictor(SPACE, single(PARTS))


def some(count: int, seed: int = 0) -> dict[int, float]:
    chosen = np.random.default_rng(seed).permutation(len(SPACE))[:count]
    return {int(i): float(TRUTH[i]) for i in chosen}


@pytest.mark.parametrize("seed", range(3))
def test_seven_percent_predict_the_rest(predictor: Predictor, seed: int) -> None:
    measured = some(round(0.07 * len(SPACE)), seed)
    rest = [i for i in range(len(SPACE)) if i not in measured]
    error = np.abs(predictor.fit(measured).median_ns[rest] / TRUTH[rest] - 1)
    assert np.median(error) < 0.1


def test_noise_is_not_learnt_by_heart(predictor: Predictor) -> None:
    noise = np.random.default_rng(1).lognormal(0, 0.1, len(SPACE))
    measured = {i: ns * noise[i] for i, ns in some(80).items()}
    error = np.abs(predictor.fit(measured).median_ns / TRUTH - 1)
    assert np.median(error) < 0.07  # less than the noise of what it was told


def test_it_is_surest_of_what_it_was_told(predictor: Predictor) -> None:
    measured = some(60)
    deviation = predictor.fit(measured).deviation
    rest = [i for i in range(len(SPACE)) if i not in measured]
    assert deviation[list(measured)].mean() < deviation[rest].mean()
    assert (deviation > 0).all()


def test_a_processor_never_measured_is_no_choice(predictor: Predictor) -> None:
    measured = {i: ns for i, ns in some(80).items() if SPACE[i].processor == ONE}
    median_ns = predictor.fit(measured).median_ns
    on_all = np.array([c.processor == ALL for c in SPACE])
    assert np.isinf(median_ns[on_all]).all() and np.isfinite(median_ns[~on_all]).all()


def test_nothing_measured_predicts_nothing(predictor: Predictor) -> None:
    assert np.isinf(predictor.fit({}).median_ns).all()


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"edgeengine\[fit\]"):
        Predictor(SPACE, single(PARTS))
