"""Gradients on an NPU (emulated), master weights on the CPU: the whole graph is taken, and the loss is the CPU's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeengine.devices.providers.accelerator import Accelerator
from edgeengine.devices.providers.qnn import QNN as ROW
from edgeengine.gradients import Request, build_trainable
from edgeengine.graph import child
from edgeengine.spec import Processor
from edgeengine.training import On, Trainer
from tests.emulator import NPU, QNN, needs_emulator

pytestmark = needs_emulator
NODE = helper.make_node
BATCH, STEPS = 8, 15


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Accelerator:
    return Accelerator(ROW, cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def npu(provider: Accelerator) -> Processor:
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (0,)
    return next(p for p in provider.discover(cores) if p.name == NPU)


def weights(**shapes: tuple[int, ...]) -> list[TensorProto]:
    rng = np.random.default_rng(0)
    made = {n: rng.standard_normal(s) * np.sqrt(2 / np.prod(s[1:] if len(s) > 2 else s[:1])) for n, s in shapes.items()}
    return [numpy_helper.from_array((a if a.ndim > 1 else 0 * a + 0.01).astype(np.float32), n) for n, a in made.items()]


def net(kind: str, batch: int | str) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    if kind == "mlp":
        shape: tuple[int, ...] = (12,)
        nodes = [
            NODE("Gemm", ["x", "w1", "b1"], ["h"]), NODE("Relu", ["h"], ["r"]),
            NODE("Gemm", ["r", "w2", "b2"], ["h2"]), NODE("Relu", ["h2"], ["r2"]), NODE("Gemm", ["r2", "w3", "b3"], ["y"]),
        ]  # fmt: skip
        held = weights(w1=(12, 32), b1=(32,), w2=(32, 16), b2=(16,), w3=(16, 3), b3=(3,))
    else:
        shape = (3, 16, 16)
        same, half = {"pads": [1, 1, 1, 1]}, {"kernel_shape": [2, 2], "strides": [2, 2]}
        nodes = [
            NODE("Conv", ["x", "k1", "c1"], ["h"], **same), NODE("Relu", ["h"], ["r"]), NODE("MaxPool", ["r"], ["p"], **half),
            NODE("Conv", ["p", "k2", "c2"], ["h2"], **same), NODE("Relu", ["h2"], ["r2"]),
            NODE("MaxPool", ["r2"], ["p2"], **half), NODE("Flatten", ["p2"], ["f"]), NODE("Gemm", ["f", "w", "b"], ["y"]),
        ]  # fmt: skip
        held = weights(k1=(8, 3, 3, 3), c1=(8,), k2=(16, 8, 3, 3), c2=(16,), w=(256, 3), b=(3,))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, *s]) for n, s in (("x", shape), ("y", (3,)))]
    graph = helper.make_graph(nodes, kind, ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), shape


@pytest.mark.parametrize(("kind", "batch"), [("mlp", BATCH), ("cnn", "batch")])
def test_gradients_on_the_npu_train_as_on_the_cpu(
    kind: str, batch: int | str, provider: Accelerator, npu: Processor, tmp_path: Path
) -> None:
    proto, shape = net(kind, batch)
    onnx.save(proto, tmp_path / "m.onnx")
    bundle = build_trainable(tmp_path / "m.onnx", tmp_path / "m.edge", Request(optimizer="sgd"), parts=1)
    there, here = Trainer(bundle, on=On(provider, npu, BATCH)), Trainer(bundle)
    (placement,) = there.placements.values()
    assert placement.nodes.keys() == {QNN} and not placement.fallback, placement
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2 * BATCH, *shape)).astype(np.float32)
    label = (x.reshape(len(x), -1)[:, :12].sum(1) > 0).astype(np.int64) + (x.reshape(len(x), -1)[:, 0] > 1)
    losses = []
    for trainer in (there, here):
        found = [trainer.step({"x": x}, label, 0.1, micro_batch=BATCH).loss for _ in range(STEPS)]
        assert found[-1] < 0.8 * found[0], found
        losses.append(found)
    # The NPU computes in float16.
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)
