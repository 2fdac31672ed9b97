"""Tiny models and their bundles, made once, and what ONNX Runtime says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeengine.bundle import Bundle
from edgeengine.graph import build_bundle, child


def _tensor(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _weight(name: str, *values: float) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.float32), name)


def _save(folder: Path, name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> Path:
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    file = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


NODE = helper.make_node


def _models(folder: Path) -> dict[str, Path]:
    """scale: y = tanh(relu(2 x + b)), three nodes to cut between. accumulate: y = x + state, new = (x + state) / 2, for carry.
    frames: f = 3 x, two frames of four. total: s = sum of six frames."""
    return {
        "scale": _save(
            folder, "scale",
            [
                NODE("Mul", ["x", "two"], ["m"]), NODE("Add", ["m", "b"], ["a"]), NODE("Relu", ["a"], ["r"]),
                NODE("Tanh", ["r"], ["y"]),
            ],
            [_tensor("x", 2, 3)], [_tensor("y", 2, 3)], [_weight("two", 2.0), _weight("b", 0.1, -0.2, 0.3)],
        ),
        "accumulate": _save(
            folder, "accumulate",
            [NODE("Add", ["x", "state"], ["y"]), NODE("Mul", ["y", "half"], ["new"])],
            [_tensor("x", 1, 2), _tensor("state", 1, 2)], [_tensor("y", 1, 2), _tensor("new", 1, 2)], [_weight("half", 0.5)],
        ),
        "frames": _save(
            folder, "frames", [NODE("Mul", ["x", "three"], ["f"])], [_tensor("x", 1, 2, 4)], [_tensor("f", 1, 2, 4)],
            [_weight("three", 3.0)],
        ),
        "total": _save(
            folder, "total", [NODE("ReduceSum", ["w", "axes"], ["s"], keepdims=0)], [_tensor("w", 1, 6, 4)], [_tensor("s", 1, 4)],
            [numpy_helper.from_array(np.array([1], np.int64), "axes")],
        ),
    }  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """XDG_STATE_HOME of the tests: what they measure and compile stays out of the user's state."""
    home = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def bundles(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """By model name. Built here instead of in a child process: the same code, without the start-up time."""
    folder = tmp_path_factory.mktemp("bundles")
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        made = {n: build_bundle(f, folder / f"{n}.edge", parts=3 if n == "scale" else None) for n, f in models.items()}
        build_bundle(models["scale"], folder / "scale in one.edge", parts=1)
    return made


@pytest.fixture(scope="session")
def by_hand(models: dict[str, Path]) -> Callable[..., dict[str, np.ndarray]]:
    """Run a whole model on ONNX Runtime directly."""
    sessions = {n: onnxruntime.InferenceSession(str(f), providers=["CPUExecutionProvider"]) for n, f in models.items()}

    def run(name: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        session = sessions[name]
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))

    return run
