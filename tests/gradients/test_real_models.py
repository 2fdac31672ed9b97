"""Downloaded inference models train as they come: the loss changes along the gradient as the gradient says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

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


def test_embedding_trains_a_new_head_on_it(tmp_path: Path) -> None:
    """A classifier appended to the downloaded wake-word embedding: it alone trains, the trunk's gradients are never made."""
    proto = onnx.load(model_file("embedding"))
    graph = proto.graph
    size = 96
    rng = np.random.default_rng(0)
    graph.initializer.extend(
        [
            numpy_helper.from_array((rng.standard_normal((size, 2)) / np.sqrt(size)).astype(np.float32), "head_weight"),
            numpy_helper.from_array(np.zeros(2, np.float32), "head_bias"),
            numpy_helper.from_array(np.array([-1, size]), "head_shape"),
        ]
    )
    old = graph.output[0].name
    graph.node.extend(
        [
            helper.make_node("Reshape", [old, "head_shape"], ["head_flat"], name="head_flat"),
            helper.make_node("Gemm", ["head_flat", "head_weight", "head_bias"], ["head"], name="head"),
        ]
    )
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("head", TensorProto.FLOAT, ["batch", 2]))
    onnx.save(proto, tmp_path / "m.onnx")
    bundle = build_trainable(tmp_path / "m.onnx", tmp_path / "m.edge", Request(train="head", optimizer="adamw"), parts=1)
    trainer = Trainer(bundle)
    assert {p.name for p in trainer.spec.parameters} == {"head_weight", "head_bias"}
    assert "Conv" not in trainer.spec.path
    (name,) = trainer.inputs
    dims = bundle.manifest.shapes[name]
    label = np.arange(8) % 2
    x = (rng.standard_normal((8, *dims[1:])) + 3 * label.reshape(-1, *[1] * (len(dims) - 1))).astype(np.float32)
    losses = [trainer.step({name: x}, label, 0.01).loss for _ in range(30)]
    assert losses[-1] < 0.1 * losses[0], losses
    assert trainer.evaluate({name: x}, label).metric == 1.0


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
