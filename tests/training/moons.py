"""A bundle that learns, small enough for tests: two moons, and the same turned upside down as what is new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgeengine.bundle import Bundle
from edgeengine.gradients import Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import Trainer
from edgeengine.training.learner import Learner, Settings
from edgeengine.training.methods import Rehearsal
from tests.gradients.nets import mlp, two_moons

GRADIENTS = Settings(
    method="gradients", store_bytes=20_000, half=False, steps_per_sample=0.5,
    rehearsal=Rehearsal(new=8, old=8, micro_batch=8, lr=0.01, average=0.5),
)  # fmt: skip
HEAD = Settings(method="head", store_bytes=20_000, half=False)
METHODS = {"gradients": GRADIENTS, "head": HEAD}


@contextmanager
def building_here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


def moons_bundle(folder: Path, optimizer: str = "adamw", loss: str = "cross_entropy") -> Bundle:
    """An mlp that knows the two moons: trained here, and built again with the trained weights as its own."""
    proto = mlp()
    with building_here():
        onnx.save(proto, folder / "raw.onnx")
        trainer = Trainer(
            build_trainable(folder / "raw.onnx", folder / "raw.edge", Request(train="all", optimizer="adamw"), parts=1)
        )
        x, label = two_moons(400, 1)
        for _ in range(60):
            trainer.step({"x": x}, label, 0.02)
        trained = trainer.version()
        for tensor in proto.graph.initializer:
            tensor.CopyFrom(onnx.numpy_helper.from_array(trained[tensor.name], tensor.name))
        onnx.save(proto, folder / "moons.onnx")
        request = Request(train="all", optimizer=optimizer, loss=loss)
        return build_trainable(folder / "moons.onnx", folder / "moons.edge", request, parts=1)


def shifted(count: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What is new: the moons moved and turned by a right angle, which the base tells badly."""
    x, label = two_moons(count, seed)
    return {"x": (x @ np.array([[0, 1], [-1, 0]], np.float32) + np.float32(3.0)).astype(np.float32)}, label


def old(count: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    x, label = two_moons(count, seed)
    return {"x": x}, label


def accuracy(learner: Learner, inputs: dict[str, np.ndarray], label: np.ndarray) -> float:
    return float(np.mean(learner.session.run(None, inputs)[0].argmax(1) == label))


def train(learner: Learner, steps: int) -> None:
    for _ in range(steps):
        learner.step()
