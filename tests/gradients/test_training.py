"""From a model to a version: what trains, what stays, what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeengine.bundle import Bundle
from edgeengine.errors import NotSupported, UserError
from edgeengine.gradients import LossOptions, Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import StepRefused, Trainer, finetune, inference_session
from edgeengine.training.data import Examples
from edgeengine.training.state import restored, start_of
from tests.gradients.nets import mlp, two_moons

NODE = helper.make_node


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


def saved(folder: Path, proto: onnx.ModelProto) -> Path:
    onnx.save(proto, folder / "m.onnx")
    return folder / "m.onnx"


def bundle_of(folder: Path, proto: onnx.ModelProto | None = None, **request: object) -> Bundle:
    return build_trainable(saved(folder, proto or mlp()), folder / "m.edge", Request(**request), parts=1)  # type: ignore[arg-type]


def moons(count: int = 64, seed: int = 0) -> Examples:
    x, label = two_moons(count, seed)
    return Examples({"x": x}, label)


def weights(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}


SELECTIONS: dict[str, set[str]] = {
    "all": {"w1", "b1", "scale", "shift", "w2", "b2", "w3", "b3"},
    "head": {"w3", "b3"},
    "last:1": {"w3", "b3"},
    "last:2": {"w2", "b2", "w3", "b3"},
    "last:9": {"w1", "b1", "scale", "shift", "w2", "b2", "w3", "b3"},
    "bias+norm": {"b1", "scale", "shift", "b2", "b3"},
    "w?": {"w1", "w2", "w3"},
    "norm": {"scale", "shift"},
    "head;norm": {"w3", "b3", "scale", "shift"},
}


@pytest.mark.parametrize("train", SELECTIONS)
def test_what_was_chosen_trains_and_the_rest_stays_bit_identical(train: str, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, train=train, weight_decay=0.1)
    trainer = Trainer(bundle)
    assert {p.name for p in trainer.spec.parameters} == SELECTIONS[train]
    assert trainer.spec.frozen == 8 - len(SELECTIONS[train])
    assert {p.name for p in trainer.spec.parameters if p.decays} == SELECTIONS[train] & {"w1", "w2", "w3"}
    examples = moons()
    trainer.step(examples.inputs, examples.label, 0.1)
    original, version = weights(mlp()), trainer.version()
    assert version.keys() == SELECTIONS[train]
    for name, array in version.items():
        assert not np.array_equal(array, original[name])
    # What serves is the base with the version over it: exactly the model with those weights in place.
    edited = mlp()
    for tensor in edited.graph.initializer:
        if tensor.name in version:
            tensor.CopyFrom(numpy_helper.from_array(version[tensor.name], tensor.name))
    import onnxruntime

    expected = onnxruntime.InferenceSession(edited.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, examples.inputs
    )
    np.testing.assert_array_equal(inference_session(bundle, version).run(None, examples.inputs)[0], expected[0])


def test_lora_starts_as_the_model_and_merges_into_its_weights(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, train="lora:rank=2;head", optimizer="adamw")
    trainer, examples = Trainer(bundle), moons()
    assert {p.name for p in trainer.spec.parameters} == {"w2/lora_a", "w2/lora_b", "w3", "b3"}
    start = trainer.version()
    np.testing.assert_array_equal(start["w2"], weights(mlp())["w2"])
    losses = [trainer.step(examples.inputs, examples.label, 0.05).loss for _ in range(20)]
    assert losses[-1] < losses[0] / 2
    version = trainer.version()
    assert version.keys() == {"w2", "w3", "b3"}
    assert np.linalg.matrix_rank(version["w2"] - start["w2"], tol=1e-5) == 2
    probabilities = inference_session(bundle, version).run(None, examples.inputs)[0]
    accuracy = float((probabilities.argmax(1) == examples.label).mean())
    assert trainer.evaluate(examples.inputs, examples.label).metric == accuracy


WEIGHINGS = (LossOptions(), LossOptions(ignore_index=1), LossOptions((0.2, 3.0)), LossOptions((0.2, 3.0), 0.1, -1))


@pytest.mark.parametrize("options", WEIGHINGS)
def test_micro_batches_make_the_step_of_the_whole_batch(options: LossOptions, tmp_path: Path) -> None:
    bundle, examples = bundle_of(tmp_path, optimizer="sgd", options=options), moons(10)
    examples.label[4:8] = 1  # a micro-batch of one class, ignored in one of the weighings
    examples.label[0] = 0
    whole, parts = Trainer(bundle), Trainer(bundle)
    a, b = whole.step(examples.inputs, examples.label, 0.1), parts.step(examples.inputs, examples.label, 0.1, micro_batch=4)
    assert a.loss == pytest.approx(b.loss, rel=1e-6)
    for name, array in whole.state.parameters.items():
        np.testing.assert_allclose(parts.state.parameters[name], array, atol=1e-6)


def test_a_step_that_is_given_up_changes_nothing(tmp_path: Path) -> None:
    trainer, examples = Trainer(bundle_of(tmp_path)), moons()
    before = {n: a.copy() for n, a in trainer.state.tensors().items()}
    trainer.gradients(examples.inputs, examples.label)
    for wrong in (np.inf, np.nan):
        broken = {"x": examples.inputs["x"].copy()}
        broken["x"][3, 0] = wrong
        with pytest.raises(StepRefused, match="step 1"):
            trainer.step(broken, examples.label, 0.1)
    held = trainer.state
    trainer.step(examples.inputs, examples.label, 0.1)
    for name, array in held.tensors().items():
        np.testing.assert_array_equal(array, before[name])
    assert trainer.state.step == 1 and held.step == 0


def test_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    bundle, examples = bundle_of(tmp_path, optimizer="adamw", weight_decay=0.1), moons()
    whole, first = Trainer(bundle), Trainer(bundle)
    for _ in range(10):
        whole.step(examples.inputs, examples.label, 0.01)
    for _ in range(5):
        first.step(examples.inputs, examples.label, 0.01)
    second = Trainer(bundle, state=restored(bundle, first.state.tensors()))
    for _ in range(5):
        second.step(examples.inputs, examples.label, 0.01)
    for name, array in whole.state.tensors().items():
        np.testing.assert_array_equal(second.state.tensors()[name], array)


def test_loss_is_taken_before_the_final_softmax_and_that_is_said(tmp_path: Path) -> None:
    spec = Trainer(bundle_of(tmp_path)).spec
    assert spec.prediction == "logits"
    assert any("before the final Softmax" in note for note in spec.notes)


def test_same_seed_gives_the_same_result(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path)
    results = [finetune(Trainer(bundle), moons(), steps=5, seed=seed) for seed in (0, 0, 1)]
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize(("seconds", "steps"), [(10.0, 10), (0.5, 1), (2.0, 2), (3.9, 3)])
def test_budget_of_time_is_used_and_not_overrun(tmp_path: Path, seconds: float, steps: int) -> None:
    """Every step takes a second of this clock. One is always made."""
    rates: list[float] = []
    trainer = Trainer(bundle_of(tmp_path))
    step = trainer.step

    def counted(inputs: Any, label: Any, lr: float, micro_batch: int | None = None) -> Any:
        rates.append(lr)
        return step(inputs, label, lr, micro_batch)

    trainer.step = counted  # type: ignore[method-assign]
    done = finetune(trainer, moons(), seconds=seconds, schedule="linear", lr=0.1, clock=lambda: float(len(rates)))
    assert done.steps == len(rates) == steps and done.seconds == steps
    assert rates == pytest.approx([0.1 * (1 - i / seconds) for i in range(steps)])


def test_budget_that_is_none_is_refused(tmp_path: Path) -> None:
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="seconds: must be above 0"):
            finetune(Trainer(bundle_of(tmp_path)), moons(), seconds=seconds)


def test_batch_baked_into_the_model_trains_in_micro_batches_of_it(tmp_path: Path) -> None:
    proto = mlp()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 2
    trainer, examples = Trainer(bundle_of(tmp_path, proto)), moons(8)
    assert trainer.fixed_batch == 2
    (tmp_path / "free").mkdir()
    free = Trainer(bundle_of(tmp_path / "free"))
    assert trainer.step(examples.inputs, examples.label, 0.1).loss == pytest.approx(
        free.step(examples.inputs, examples.label, 0.1).loss, rel=1e-6
    )
    with pytest.raises(UserError, match="no multiple"):
        trainer.step({"x": examples.inputs["x"][:3]}, examples.label[:3], 0.1)


def test_batch_normalization_is_frozen_or_updates_its_statistics(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors: Mapping[str, np.ndarray] = {
        "w": rng.standard_normal((2, 4)),
        "scale": np.ones(4),
        "shift": np.zeros(4),
        "mean": np.zeros(4),
        "var": np.ones(4),
        "head": rng.standard_normal((4, 2)),
    }
    nodes = [
        NODE("MatMul", ["x", "w"], ["h"], name="linear"),
        NODE("BatchNormalization", ["h", "scale", "shift", "mean", "var"], ["n"], name="norm"),
        NODE("MatMul", ["n", "head"], ["y"], name="out"),
    ]
    proto = _model(nodes, {n: a.astype(np.float32) for n, a in tensors.items()})
    x, label = two_moons(32)
    for update in (False, True):
        folder = tmp_path / str(update)
        folder.mkdir()
        trainer = Trainer(bundle_of(folder, proto, update_statistics=update))
        trainer.step({"x": x}, label, 0.1)
        version = trainer.version()
        assert ("mean" in version) == ("var" in version) == update
        if update:
            h = (x @ tensors["w"].astype(np.float32)).astype(np.float64)
            np.testing.assert_allclose(version["mean"], 0.1 * h.mean(0), rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(version["var"], 0.9 + 0.1 * h.var(0, ddof=1), rtol=1e-4)


def _model(nodes: list[onnx.NodeProto], tensors: Mapping[str, np.ndarray], fused: bool = False) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(a, n) for n, a in tensors.items()],
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid("com.microsoft", 1)] if fused else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


W = {"w": np.eye(2, dtype=np.float32), "v": np.ones((2, 2), np.float32)}
REFUSED: dict[str, tuple[onnx.ModelProto, dict[str, object], str]] = {
    "unknown parameter": (mlp(), {"train": "w9"}, "did you mean"),
    "no layers": (mlp(), {"train": "last:0"}, "last:2"),
    "unknown loss": (mlp(), {"loss": "hinge"}, "no loss 'hinge'"),
    "unknown optimizer": (mlp(), {"optimizer": "sgdd"}, "no optimizer 'sgdd'"),
    "unknown output": (mlp(), {"output": "z"}, "no output 'z'"),
    "rank too high": (mlp(), {"train": "lora:rank=64"}, "rank 64"),
    "class weights": (mlp(), {"options": LossOptions((1.0, 2.0, 3.0))}, "3 class weights for 2 classes"),
    "dropout in training form": (
        _model(
            [NODE("MatMul", ["x", "w"], ["h"]), NODE("Dropout", ["h", "ratio", "on"], ["y"], name="drop")],
            {**W, "ratio": np.float32(0.0), "on": np.array(True)},
        ),
        {},
        "training form",
    ),
    "batch normalization in training form": (
        _model(
            [
                NODE("MatMul", ["x", "w"], ["h"]),
                NODE("BatchNormalization", ["h", "one", "one", "one", "one"], ["y", "m", "s"], name="norm", training_mode=1),
            ],
            {**W, "one": np.ones(2, np.float32)},
        ),
        {},
        "'norm' is in training form",
    ),
    "equal statistics joined by the exporter": (
        _model(
            [
                NODE("Identity", ["zero"], ["mean"]),
                NODE("MatMul", ["x", "w"], ["h"]),
                NODE("BatchNormalization", ["h", "one", "zero", "mean", "one2"], ["n"], name="norm"),
                NODE("MatMul", ["n", "v"], ["y"]),
            ],
            {**W, "one": np.ones(2, np.float32), "zero": np.zeros(2, np.float32), "one2": np.ones(2, np.float32)},
        ),
        {"update_statistics": True},
        "'mean' is a copy that the exporter made",
    ),
    "no float weights": (
        _model(
            [NODE("DequantizeLinear", ["q", "s"], ["w"]), NODE("MatMul", ["x", "w"], ["y"])],
            {"q": np.ones((2, 2), np.int8), "s": np.float32(0.1)},
        ),
        {},
        "keep the float one",
    ),
    "model optimized before": (
        _model(
            [NODE("MatMul", ["x", "w"], ["h"]), NODE("QuickGelu", ["h"], ["y"], domain="com.microsoft", name="fused")],
            W,
            fused=True,
        ),
        {},
        "was optimized",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_requests_say_what_to_do_and_write_nothing(case: str, tmp_path: Path) -> None:
    proto, request, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        bundle_of(tmp_path, proto, **request)
    assert [f.name for f in tmp_path.iterdir()] in ([], ["m.onnx"])


def test_operator_without_a_rule_is_named_with_what_can_train_behind_it(tmp_path: Path) -> None:
    nodes = [
        NODE("MatMul", ["x", "w"], ["h"], name="first"),
        NODE("Hardmax", ["h"], ["unused"], name="off the path"),
        NODE("LRN", ["h4"], ["l"], name="middle", size=1),
        NODE("MatMul", ["l2", "v"], ["y"], name="last"),
    ]
    nodes[2:2] = [NODE("Unsqueeze", ["h", "axes"], ["h4"], name="up")]
    nodes[4:4] = [NODE("Squeeze", ["l", "axes"], ["l2"], name="down")]
    proto = _model(nodes, {**W, "axes": np.array([2, 3])})
    with pytest.raises(NotSupported, match=r"LRN.*'middle'.*lies behind it: v") as e:
        bundle_of(tmp_path, proto)
    assert e.value.op == "LRN" and e.value.node == "middle"
    spec = Trainer(bundle_of(tmp_path, proto, train="v")).spec
    assert [p.name for p in spec.parameters] == ["v"]


def test_labels_and_inputs_are_checked_before_anything_runs(tmp_path: Path) -> None:
    trainer, examples = Trainer(bundle_of(tmp_path)), moons(8)
    wrong = {
        "out of range": (examples.inputs, np.full(8, 2)),
        "-1 is out of range": (examples.inputs, np.full(8, -1)),
        "wants int64": (examples.inputs, np.zeros(8, np.float32)),
        "has shape": ({"x": examples.inputs["x"][:, :1]}, examples.label),
        "not given": ({}, examples.label),
        "holds <U1": ({"x": np.full_like(examples.inputs["x"], 0).astype("U1")}, examples.label),
        "holds int64": ({"x": examples.inputs["x"].astype(np.int64)}, examples.label),
    }
    for words, (inputs, label) in wrong.items():
        with pytest.raises(UserError, match=words):
            trainer.step(inputs, label, 0.1)
    assert trainer.state.step == 0


def test_state_of_another_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    bundle, other = bundle_of(tmp_path), bundle_of(tmp_path / "other", train="head")
    with pytest.raises(UserError, match="another bundle"):
        restored(bundle, start_of(other).tensors())
    with pytest.raises(UserError, match="the version holds"):
        inference_session(other, Trainer(bundle).version())
