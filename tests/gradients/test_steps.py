"""A step as micro-steps: the same as in one go, nothing before the commit, nothing after it is given up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import InternalError, UserError
from edgeengine.gradients import Pace, Request, build_trainable
from edgeengine.graph import child
from edgeengine.spec import SubgraphSpec
from edgeengine.training import StepRefused, Trainer
from tests.gradients.nets import mlp, two_moons

X, LABEL = two_moons(10)


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("graph.shapes", "graph.build", "gradients.micro_steps"):
            patch.setattr(f"edgeengine.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
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


def by_nodes(bundle: Bundle, subgraphs: Sequence[SubgraphSpec]) -> list[float]:
    """A machine on which every node takes a millisecond."""
    return [1e6 * s.nodes for s in subgraphs]


@pytest.fixture(scope="module", params=["all", "head"])
def cut(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("cut")
    onnx.save(mlp(), folder / "m.onnx")
    pace = Pace(by_nodes, examples=4, limit_ns=15e6)
    return build_trainable(folder / "m.onnx", folder / "m.edge", Request(request.param), parts=1, pace=pace)


def test_gradient_graph_is_cut_into_runs_of_bounded_time(cut: Bundle) -> None:
    spec = cut.manifest.training
    assert spec is not None and len(spec.parts) > 1
    assert all(0 < p.latency_ns <= 15e6 and p.examples == 4 for p in spec.parts) and spec.optimizer_ns > 0
    assert {p.file for p in spec.parts} <= cut.manifest.files.keys()
    # The parts read frozen weights where the bundle has them: nothing is stored twice.
    assert sum((cut.path / p.file).stat().st_size for p in spec.parts) < 60_000


def test_step_in_parts_is_the_step_in_one(cut: Bundle) -> None:
    whole, parts = Trainer(cut), Trainer(cut, cut=True)
    names = [p.name for p in parts.spec.parts]
    for _ in range(3):
        pending = parts.begin({"x": X}, LABEL, 0.01, micro_batch=5)
        assert [m.name for m in pending.micro_steps] == [*names, *names, "optimizer"]
        for run in pending.micro_steps:
            run()
        assert pending.commit().loss == pytest.approx(whole.step({"x": X}, LABEL, 0.01, micro_batch=5).loss, rel=1e-5)
    for name, array in whole.state.parameters.items():
        np.testing.assert_allclose(parts.state.parameters[name], array, atol=1e-5)
    assert parts.inputs == whole.inputs
    pending = parts.begin({"x": X}, LABEL, 0.01)
    before = parts.state
    for run in pending.micro_steps[:2]:
        run()
    pending.abandon()
    assert parts.state is before


def test_limit_that_no_cut_keeps_is_refused_and_nothing_written(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "m.onnx")
    with pytest.raises(UserError, match=r"the gradient graph of 1 examples: parts under 0\.5 ms are impossible"):
        build_trainable(tmp_path / "m.onnx", tmp_path / "m.edge", Request(), parts=1, pace=Pace(by_nodes, limit_ns=5e5))
    assert [f.name for f in tmp_path.iterdir()] == ["m.onnx"]
