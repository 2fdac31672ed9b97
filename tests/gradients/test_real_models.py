"""Downloaded inference models train as they come: the loss changes along the gradient as the gradient says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeengine.gradients import Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import Trainer
from tests.models import model_file

# Model -> what trains, the loss, the output, inputs made constant, parameters that train.
RUNS: dict[str, tuple[str, str, str | None, dict[str, np.ndarray], int]] = {
    "embedding": ("last:2", "mse", None, {}, 3),
    "orientation": ("all", "cross_entropy", None, {}, 92),
    "magika": ("last:2", "cross_entropy", None, {}, 6),
    "silero": ("all", "bce", "output", {"sr": np.array(16000)}, 11),
    "silero-op15": ("all", "bce", "output", {"sr": np.array(16000)}, 11),
    "ocr-direction": ("head", "cross_entropy", None, {}, 2),
    "basic-pitch": ("last:2", "mse", "StatefulPartitionedCall:1", {}, 2),
}


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


@pytest.mark.parametrize("short", RUNS)
def test_loss_changes_along_the_gradient_as_it_says(short: str, tmp_path: Path) -> None:
    train, loss, output, fix, count = RUNS[short]
    shapes = {"input": (1, 576)} if short == "silero" else None
    request = Request(train=train, loss=loss, optimizer="sgd", output=output)
    bundle = build_trainable(model_file(short), tmp_path / "m.edge", request, parts=1, fix=fix, shapes=shapes)
    trainer = Trainer(bundle)
    assert len(trainer.spec.parameters) == count, [p.name for p in trainer.spec.parameters]
    rng = np.random.default_rng(0)
    size = trainer.fixed_batch or 2
    inputs = {}
    for spec in bundle.manifest.inputs:
        if spec.name in trainer.inputs:
            axis, dims = trainer.batch_axis(spec.name), list(bundle.manifest.shapes[spec.name])
            shape = dims if axis is None else [size, *(d for i, d in enumerate(dims) if i != axis)]
            integers = not spec.dtype.startswith("float")
            inputs[spec.name] = (rng.integers(0, 200, shape) if integers else rng.standard_normal(shape) * 0.1).astype(spec.dtype)
    dims = [size if isinstance(d, str) else d for d in trainer.spec.label.shape]
    label = rng.integers(0, trainer.spec.classes, dims) if trainer.spec.classes else rng.random(dims, np.float32)
    found, start = trainer.gradients(inputs, label), trainer.state
    squared = sum(float((g.astype(np.float64) ** 2).sum()) for g in found.gradients.values())
    assert trainer.step(inputs, label, 1e-6).gradient_norm ** 2 == pytest.approx(squared, rel=1e-3)
    # Ahead and back along the gradient, so far that the loss should change by 2e-4 of itself.
    length, losses = 2e-4 * found.loss / squared, []
    for sign in (1, -1):
        moved = {n: (a + np.float32(sign * length) * found.gradients[n]) for n, a in start.parameters.items()}
        trainer.state = replace(start, parameters=moved)
        losses.append(trainer.gradients(inputs, label).loss)
    assert losses[0] - losses[1] == pytest.approx(2 * length * squared, rel=0.1)
