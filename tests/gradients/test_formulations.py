"""Equal formulations: all give the same gradients, the fastest that runs is taken, per node and geometry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeengine.gradients import Chooser, Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import Trainer

NODE = helper.make_node
BATCH = 4


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions (two alike, one depthwise), a batch normalization, a pool, a layer normalization."""
    rng = np.random.default_rng(0)
    shapes = {"k1": (5, 3, 3, 3), "k2": (5, 5, 3, 3), "k3": (5, 5, 3, 3), "k4": (5, 1, 3, 3), "w": (80, 3)}
    held = {n: rng.standard_normal(s) / np.sqrt(np.prod(s[1:])) for n, s in shapes.items()}
    held |= {"scale": rng.random(5) + 1, "shift": rng.random(5), "mean": rng.random(5), "var": rng.random(5) + 1}
    held |= {"ls": rng.random(80) + 1, "lb": rng.random(80)}
    same = {"pads": [1, 1, 1, 1]}
    nodes = [
        NODE("Conv", ["x", "k1"], ["c1"], **same),
        NODE("BatchNormalization", ["c1", "scale", "shift", "mean", "var"], ["n1"]),
        NODE("Relu", ["n1"], ["r1"]),
        NODE("Conv", ["r1", "k2"], ["c2"], **same),
        NODE("Conv", ["c2", "k3"], ["c3"], **same),
        NODE("Conv", ["c3", "k4"], ["c4"], group=5, **same),
        NODE("MaxPool", ["c4"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Flatten", ["p"], ["f"]),
        NODE("LayerNormalization", ["f", "ls", "lb"], ["l"]),
        NODE("MatMul", ["l", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in held.items()],
    )  # fmt: skip
    file = tmp_path_factory.mktemp("formulations") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


class Clock:
    """A race in which models of these positions win, and those of `absent` do not run; keeps what it was asked."""

    def __init__(self, winner: int, absent: frozenset[int] = frozenset()):
        self.winner, self.absent = winner, absent
        self.asked: list[int] = []

    def __call__(self, models: Sequence[bytes], feeds: Mapping[str, np.ndarray]) -> list[float | None]:
        results = []
        for model in models:
            session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
            assert {i.name for i in session.get_inputs()} <= feeds.keys()
            results.append(session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()}))
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(a).max())
        self.asked.append(len(models))
        best = min(self.winner, len(models) - 1)
        return [None if k in self.absent else float(abs(k - best)) for k in range(len(models))]


def trainer(model: Path, folder: Path, race: Clock) -> Trainer:
    request = Request(optimizer="sgd", update_statistics=True, chooser=Chooser(race, BATCH))
    return Trainer(build_trainable(model, folder / "m.edge", request, parts=1))


def test_each_geometry_is_raced_once_and_whatever_wins_gives_the_same_gradients(model: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, label = rng.standard_normal((BATCH, 3, 8, 8)).astype(np.float32), rng.integers(0, 3, BATCH)
    found, chosen = [], []
    for winner in range(4):
        race = Clock(winner)
        made = trainer(model, tmp_path / str(winner), race)
        # Three geometries of convolutions (two of the four are alike), normalizations, the pool.
        assert len(race.asked) == 6
        found.append(made.gradients({"x": x}, label))
        chosen.append(made.spec.forms)
    assert chosen[0]["conv_weight@c2"] == chosen[0]["conv_weight@c3"] == "taps"
    assert [c["conv_weight@c4"] for c in chosen] == ["gather", "taps_depthwise", "columns_depthwise", "rows_depthwise"]
    assert [c["batch_norm@n1"] for c in chosen[:2]] == ["kernel", "plain"]
    for other in found[1:]:
        for name, gradient in found[0].gradients.items():
            np.testing.assert_allclose(other.gradients[name], gradient, rtol=1e-3, atol=2e-5)
        for name, statistic in found[0].statistics.items():
            np.testing.assert_allclose(other.statistics[name], statistic, rtol=1e-4)


def test_what_does_not_run_there_is_not_taken(model: Path, tmp_path: Path) -> None:
    forms = trainer(model, tmp_path, Clock(0, frozenset({0}))).spec.forms
    assert forms["conv_weight@c4"] == "taps_depthwise" and forms["layer_norm@l"] == "plain"
    assert not trainer(model, tmp_path, Clock(0, frozenset(range(9)))).spec.forms  # the defaults
