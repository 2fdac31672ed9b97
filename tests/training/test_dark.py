"""Dark experience replay: beside the labels, rehearsed samples keep the logits that they had when they were learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training import Trainer
from edgeengine.training.learner import Learner
from edgeengine.training.methods import GradientSteps
from edgeengine.training.session import Finetuning
from edgeengine.training.store import VersionStore
from tests.training.moons import GRADIENTS, HEAD, moons_bundle, old, shifted

SCARCE = replace(GRADIENTS, steps_per_sample=1.0)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    return {loss: moons_bundle(tmp_path_factory.mktemp(loss), loss=loss) for loss in ("cross_entropy", "der")}


def drifted(bundle: Bundle, state: Path) -> float:
    """How far the logits of old samples have moved, root mean square, after learning something new."""
    learner, inputs = Learner(bundle, state, SCARCE), old(100, 9)[0]
    assert isinstance(learner.method, GradientSteps)
    before = learner.method.trainer.predictions(inputs)
    learner.learn(*old(60, 2), domain="old", known=True)
    learner.learn(*shifted(60, 3))
    while learner.busy:
        learner.step()
    assert learner.method.steps >= 40
    return float(np.sqrt(np.mean((learner.method.trainer.predictions(inputs) - before) ** 2)))


def test_old_samples_keep_their_logits_better_than_by_labels_alone(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    by_labels, dark = (drifted(bundles[loss], tmp_path / loss) for loss in ("cross_entropy", "der"))
    assert dark < 0.5 * by_labels


def test_logits_are_stored_where_the_model_was_right(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    learner = Learner(bundles["der"], tmp_path, SCARCE)
    inputs, label = shifted(60, 3)
    trainer = Trainer(bundles["der"])
    expected = trainer.predictions(inputs)
    wrong = expected.argmax(1) != label
    assert 0 < wrong.sum() < len(label)
    numbers = learner.learn(inputs, label, held_back=False)
    slots = learner.samples.newest(60, 60, np.random.default_rng(0))
    of = learner.samples.tensors()["number"][slots].tolist()
    stored = dict(zip(of, learner.samples.logits(slots), strict=True))
    for number, row, bad in zip(numbers, expected, wrong, strict=True):
        assert np.isnan(stored[number]).all() if bad else np.array_equal(stored[number], row)


def test_goes_on_bit_for_bit_after_a_restart(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    whole, first = (Learner(bundles["der"], tmp_path / name, SCARCE) for name in ("whole", "parts"))
    for learner in (whole, first):
        learner.learn(*shifted(40, 3))
    for _ in range(10):
        whole.step()
    for _ in range(5):
        first.step()
    second = Learner(bundles["der"], tmp_path / "parts", SCARCE)
    for _ in range(5):
        second.step()
    for name, array in whole.method.version().items():
        np.testing.assert_array_equal(second.method.version()[name], array)


def test_a_solved_head_needs_none(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    learner = Learner(bundles["der"], tmp_path, HEAD)
    learner.learn(*old(120, 2), domain="old", known=True)
    while learner.busy:
        learner.step()
    assert learner.publish().verdict.passed


def test_what_does_not_fit_is_refused(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leave out --store-kb"):
        Finetuning(bundles["der"], VersionStore(tmp_path, bundles["der"]), store_bytes=10_000)
    trainer, (inputs, _) = Trainer(bundles["der"]), old(4, 1)
    for target in (np.full((4, 3), 7, np.float32), np.zeros((4, 2), np.float32)):
        with pytest.raises(UserError):
            trainer.step(inputs, target, 0.01)
