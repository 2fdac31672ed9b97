"""What learning may never do to those who are served: whatever the labels, the numbers, the rate, and however slowly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training import StepRefused
from edgeengine.training.guard import lost_since
from edgeengine.training.learner import Learner
from edgeengine.training.store import VersionRecord
from tests.training.moons import GRADIENTS, METHODS, accuracy, moons_bundle, old, shifted, train

CLEAN = 2000
WINDOW = 60  # labelled samples, as docs/how-to/learn.md has it


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return moons_bundle(tmp_path_factory.mktemp("moons"))


def tolerance(learner: Learner) -> float:
    """The margin, and what a held-back slice of this size cannot tell: two standard errors of a share near a half."""
    return learner.settings.margin + 1 / np.sqrt(len(learner.samples.held_back()))


# ---- poisoned labels ----

Poison = Callable[[np.random.Generator, np.ndarray], np.ndarray]
POISONS: dict[str, Poison] = {
    "any label": lambda rng, label: np.where(rng.random(len(label)) < 0.3, 1 - label, label),
    "one label": lambda rng, label: np.where(rng.random(len(label)) < 0.3, 0, label),
    "in bursts": lambda rng, label: 1 - label if rng.random() < 0.3 else label,
}


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("method", METHODS)
def test_what_serves_stays_within_the_margin_of_the_best_with_30_percent_wrong_labels(
    method: str, poison: str, bundle: Bundle, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    learner = Learner(bundle, tmp_path, METHODS[method])
    learner.learn(*old(150, 2), domain="old", known=True)
    learner.learn(*shifted(100, 3))
    train(learner, 60)
    assert learner.publish().verdict.passed
    tests = (old(CLEAN, 9), shifted(CLEAN, 9))
    best = [accuracy(learner, *one) for one in tests]
    for i in range(8):
        inputs, label = shifted(40, 20 + i)
        learner.learn(inputs, POISONS[poison](rng, label))
        train(learner, 20)
        learner.publish()
        now = [accuracy(learner, *one) for one in tests]
        assert all(a >= b - tolerance(learner) for a, b in zip(now, best, strict=True)), (i, now, best)
        best = [max(pair) for pair in zip(now, best, strict=True)]


# ---- a slow decline ----


def test_versions_each_a_little_worse_do_not_add_up(bundle: Bundle, tmp_path: Path) -> None:
    """Towards weights of nothing in a hundred versions, each within the margin of the one before."""
    learner = Learner(bundle, tmp_path, GRADIENTS)
    learner.learn(*old(400, 2), domain="old")
    good = learner.method.version()
    start = accuracy(learner, *old(CLEAN, 9))
    passed = 0
    for i in range(1, 101):
        worse = {n: a * np.float32(1 - i / 100) for n, a in good.items()}
        learner.method.version = lambda version=worse: version  # type: ignore[method-assign]
        passed += learner.publish().verdict.passed
    assert passed > 10
    assert accuracy(learner, *old(CLEAN, 9)) >= start - tolerance(learner)
    assert "instead of 1" in learner.publish().verdict.cause


def test_the_loss_is_counted_from_the_best_version_and_forgets_those_taken_back() -> None:
    def one(before: float, after: float, cause: str = "") -> VersionRecord:
        return VersionRecord(f"{before}-{after}", 1, {"user": before}, {"user": after}, cause)

    assert lost_since([]) == {}
    assert lost_since([one(0.8, 0.9), one(0.9, 0.88)])["user"] == pytest.approx(0.02)
    assert lost_since([one(0.9, 0.88), one(0.88, 0.87)])["user"] == pytest.approx(0.03)
    assert lost_since([one(0.9, 0.88), one(0.88, 0.95)])["user"] == 0.0
    assert lost_since([one(0.9, 0.88), one(0.88, 0.5, "taken back")])["user"] == pytest.approx(0.02)


# ---- broken numbers ----

BROKEN = {"not a number": np.nan, "infinite": np.inf, "beyond what 16 bits hold": 1e6}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_value_among_good_ones_is_refused_and_learning_goes_on(what: str, bundle: Bundle, tmp_path: Path) -> None:
    """Stored, it would make every later step and every guard refuse."""
    learner = Learner(bundle, tmp_path, replace(GRADIENTS, half=True))
    learner.learn(*old(100, 2), domain="old", known=True)
    inputs, label = shifted(120, 3)
    broken = {"x": inputs["x"].copy()}
    broken["x"][7, 1] = BROKEN[what]
    with pytest.raises(UserError, match="input 'x' holds values"):
        learner.learn(broken, label)
    learner.learn(inputs, label)
    train(learner, 120)
    assert learner.publish().verdict.passed and accuracy(learner, *shifted(300, 9)) > 0.9


# ---- the detection window ----


def test_a_version_that_fails_in_service_is_gone_within_the_window(bundle: Bundle, tmp_path: Path) -> None:
    learner = Learner(bundle, tmp_path, GRADIENTS)
    learner.learn(*old(120, 2), domain="old", known=True)
    learner.learn(*shifted(120, 3))
    before = learner.session.run(None, shifted(64, 8)[0])[0]
    train(learner, 120)
    bad = learner.publish().version
    inputs, label = shifted(200, 30)
    shown = 0
    while learner.serving == bad:
        learner.learn({"x": inputs["x"][shown : shown + 1]}, 1 - label[shown : shown + 1])  # the world has turned round
        shown += 1
        assert shown <= WINDOW
    assert learner.serving == "" and shown == learner.watchdog.least
    np.testing.assert_array_equal(learner.session.run(None, shifted(64, 8)[0])[0], before)


def test_a_wild_rate_serves_the_same_bits_for_ever(bundle: Bundle, tmp_path: Path) -> None:
    learner = Learner(bundle, tmp_path, replace(GRADIENTS, rehearsal=replace(GRADIENTS.rehearsal, lr=1e30)))
    learner.learn(*old(120, 2), domain="old", known=True)
    served = learner.session.run(None, old(50, 9)[0])[0]
    for i in range(5):
        learner.learn(*shifted(40, i))
        tries = 0
        while learner.busy and tries < 100:  # 40 samples ask for 16 steps, refused or not
            tries += 1
            try:
                learner.step()
            except StepRefused:  # as the engine does
                learner.refuse()
        assert not learner.busy
        learner.publish()
        np.testing.assert_array_equal(learner.session.run(None, old(50, 9)[0])[0], served)
    assert learner.serving == ""
