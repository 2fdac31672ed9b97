"""Several workers train one bundle: batches that end together, stale gradients that count less, a guard that falls back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training import Trainer
from edgeengine.training import workers as module
from edgeengine.training.data import Examples
from edgeengine.training.workers import Pace, Published, finetune_beside
from tests.training.moons import moons_bundle, shifted


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return moons_bundle(tmp_path_factory.mktemp("moons"), optimizer="sgd")


@pytest.fixture(scope="module")
def adam(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return moons_bundle(tmp_path_factory.mktemp("adam"))


@given(st.floats(0, 0.1), st.floats(1e-6, 0.1), st.floats(1e-3, 1), st.integers(1, 256), st.sampled_from([1, 2, 8]))
def test_the_batch_ends_by_the_deadline_and_one_more_would_not(
    start_s: float, each_s: float, deadline_s: float, most: int, multiple: int
) -> None:
    batch = Pace(start_s, each_s).batch(deadline_s, most, multiple)
    assert batch % multiple == 0 and multiple <= batch <= max(most, multiple)
    assert batch == multiple or start_s + batch * each_s <= deadline_s * (1 + 1e-9)
    more = batch + multiple
    assert more > most or start_s + more * each_s > deadline_s * (1 - 1e-9)


def test_a_stale_gradient_counts_less_and_one_too_stale_not_at_all(bundle: Bundle) -> None:
    inputs, label = shifted(32, 1)
    steps = {}
    for version in (4, 3, 1, 0):
        trainer = Trainer(bundle)
        before = trainer.state
        shared = Published(trainer, most_stale=3, version=4)
        taken = shared.take(trainer.gradients(inputs, label), version, 0.1)
        assert taken is (version >= 1) and shared.version == 4 + taken and shared.dropped == (not taken)
        steps[version] = np.concatenate([(trainer.state.parameters[n] - a).ravel() for n, a in before.parameters.items()])
    np.testing.assert_allclose(steps[3], steps[4], rtol=1e-6)  # one version behind is no more than a worker must be
    np.testing.assert_allclose(steps[1], steps[4] / 3, rtol=1e-4, atol=1e-7)
    assert not steps[0].any()


def test_gradients_are_of_the_state_they_were_asked_for(bundle: Bundle) -> None:
    trainer, (inputs, label) = Trainer(bundle), shifted(32, 1)
    first = trainer.state
    then = trainer.gradients(inputs, label)
    trainer.step(inputs, label, 0.5)
    again = trainer.gradients(inputs, label, first)
    for name, array in then.gradients.items():
        np.testing.assert_array_equal(again.gradients[name], array)


@pytest.mark.parametrize("count", [1, 3])
def test_learns_what_is_new(adam: Bundle, count: int) -> None:
    trainers = [Trainer(adam) for _ in range(count)]
    result = finetune_beside(trainers, Examples(*shifted(400, 3)), steps=400, lr=0.02, check_every=100)
    # How far several come hangs on which gradients meet; one alone always makes the same steps.
    assert result.metric_before < 0.6 and result.metric_after > (0.85 if count == 1 else 0.65)
    assert result.updates == 400 and len(result.batches) == count
    assert result.alone_after is not None or trainers[0].state.step == 400  # else it went on from the best state
    assert count > 1 or (result.staleness, result.dropped, result.alone_after) == (0.0, 0, None)


def test_where_the_hold_out_falls_the_best_weights_come_back_and_one_goes_on(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second worker's gradients point the wrong way: what asynchrony may do at worst."""
    trainers = [Trainer(bundle) for _ in range(2)]
    right = trainers[1].gradients

    def wrong(*given: object) -> object:
        found = right(*given)  # type: ignore[arg-type]
        return replace(found, gradients={n: -50 * g for n, g in found.gradients.items()})

    monkeypatch.setattr(trainers[1], "gradients", wrong)
    result = finetune_beside(trainers, Examples(*shifted(400, 3)), steps=400, lr=0.3, check_every=20)
    assert result.alone_after is not None and result.updates == 400
    assert result.metric_after >= result.metric_before - 0.02


def test_what_cannot_be(bundle: Bundle, adam: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = Examples(*shifted(40, 3))
    for trainers in ([], [Trainer(bundle), Trainer(adam)]):
        with pytest.raises(UserError, match="same bundle"):
            finetune_beside(trainers, examples)
    with pytest.raises(UserError, match="must be above 0"):
        finetune_beside([Trainer(bundle)], examples, deadline_s=0)

    def broken(*_: object) -> object:
        raise UserError("this worker has no power")

    monkeypatch.setattr(module, "pace_of", lambda trainer, examples: Pace(0.0, 1e-3))
    trainers = [Trainer(bundle), Trainer(bundle)]
    monkeypatch.setattr(trainers[1], "gradients", broken)
    with pytest.raises(UserError, match="no power"):
        finetune_beside(trainers, examples)
