"""A step as micro-steps: the same as in one go, nothing before the commit, nothing after it is given up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import InternalError, UserError
from edgeengine.gradients import Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import StepRefused, Trainer
from tests.gradients.nets import mlp, two_moons

X, LABEL = two_moons(10)


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("steps")
    onnx.save(mlp(), folder / "m.onnx")
    return build_trainable(folder / "m.onnx", folder / "m.edge", Request(), parts=1)


def test_micro_steps_and_commit_are_the_step(bundle: Bundle) -> None:
    trainer, other = Trainer(bundle), Trainer(bundle)
    for _ in range(2):
        before = trainer.state
        pending = trainer.begin({"x": X}, LABEL, 0.01, micro_batch=4)
        assert [(m.name, m.examples) for m in pending.micro_steps] == [
            ("gradient", 4), ("gradient", 4), ("gradient", 2), ("optimizer", 10),
        ]  # fmt: skip
        for run in pending.micro_steps:
            run()
            assert trainer.state is before
        assert pending.commit() == other.step({"x": X}, LABEL, 0.01, micro_batch=4)
    for name, array in trainer.state.tensors().items():
        np.testing.assert_array_equal(array, other.state.tensors()[name])


@pytest.mark.parametrize("done", [0, 1, 3, 4])
def test_a_step_that_is_abandoned_changes_nothing(bundle: Bundle, done: int) -> None:
    trainer, fresh = Trainer(bundle), Trainer(bundle)
    pending = trainer.begin({"x": X}, LABEL, 0.01, micro_batch=4)
    runs = pending.micro_steps
    for run in runs[:done]:
        run()
    pending.abandon()
    with pytest.raises(InternalError, match="out of turn"):
        runs[min(done, 3)]()
    with pytest.raises(InternalError, match="over"):
        pending.commit()
    assert trainer.step({"x": X}, LABEL, 0.01) == fresh.step({"x": X}, LABEL, 0.01)


def test_only_a_whole_step_is_committed_and_only_on_the_state_it_began_with(bundle: Bundle) -> None:
    trainer = Trainer(bundle)
    pending, late = trainer.begin({"x": X}, LABEL, 0.01), trainer.begin({"x": X}, LABEL, 0.01)
    with pytest.raises(InternalError, match="out of turn"):
        pending.micro_steps[1]()
    for run in late.micro_steps:
        run()
    pending.micro_steps[0]()
    with pytest.raises(InternalError, match="1 of 2"):
        pending.commit()
    pending.micro_steps[1]()
    pending.commit()
    with pytest.raises(InternalError, match="begin it anew"):
        late.commit()
    assert trainer.state.step == 1


def test_loss_that_is_not_finite_is_refused_by_the_last_micro_step(bundle: Bundle) -> None:
    trainer = Trainer(bundle)
    before = trainer.state
    gradient, optimizer = trainer.begin({"x": X * np.float32(np.inf)}, LABEL, 0.01).micro_steps
    gradient()
    with pytest.raises(StepRefused, match="step 1"):
        optimizer()
    assert trainer.state is before


def test_batches_that_do_not_fit_are_refused_before_anything_runs(bundle: Bundle) -> None:
    trainer = Trainer(bundle)
    with pytest.raises(UserError, match="empty batch"):
        trainer.begin({"x": X[:0]}, LABEL[:0], 0.01)
    with pytest.raises(UserError, match="micro-batches of 0"):
        trainer.begin({"x": X}, LABEL, 0.01, micro_batch=0)
    with pytest.raises(UserError, match="out of range"):
        trainer.begin({"x": X}, LABEL + 1, 0.01)
