"""Losses and their gradients against torch, in double precision there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("torch", reason="the reference is torch (installed with converters)")

import torch
import torch.nn.functional as F

from edgeengine.errors import UserError
from edgeengine.gradients.differentiate import differentiate, pruned
from edgeengine.gradients.looking import Look, Sizes, look
from edgeengine.gradients.losses import LOSSES, LossOptions
from edgeengine.gradients.tape import Tape, Tensor
from edgeengine.graph.dtypes import TO_ONNX
from edgeengine.graph.session import create

Array = np.ndarray
RNG = np.random.default_rng(0)
LOGITS, LABELS = RNG.standard_normal((6, 5)).astype(np.float32), np.array([0, 4, 2, 2, 1, 3])
MAPS, PIXELS = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32), RNG.integers(0, 3, (2, 4, 4))
TARGETS = RNG.standard_normal((6, 5)).astype(np.float32)
FLAGS = RNG.integers(0, 2, (6, 5)).astype(np.float32)
WEIGHTS = (0.5, 2.0, 1.0, 0.1, 3.0)


def loss_and_gradient(name: str, x: Array, target: Array, options: LossOptions) -> tuple[float, Array]:
    """The loss of x and target, the batch free, and its gradient with respect to x."""
    tape = Tape("loss/", 20)
    row = LOSSES[name]
    batched = tuple(None if i == 0 else d for i, d in enumerate(x.shape))
    total = row.emit(Tensor(tape, "x", "float32", batched), Tensor(tape, "t", row.target, (None, *target.shape[1:])), options)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *x.shape[1:]]),
        helper.make_tensor_value_info("t", TO_ONNX[row.target], ["n", *target.shape[1:]]),
    ]
    graph = helper.make_graph(tape.nodes, "loss", inputs, [onnx.ValueInfoProto(name=total.name)], list(tape.constants.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    sizes = Sizes({"x": x.shape, "t": target.shape}, {"x": (len(x) + 1, *x.shape[1:]), "t": (len(x) + 1, *target.shape[1:])}, {})
    seen: Look = look(model, sizes)
    backward = differentiate(graph, 20, seen, total.name, ["x"])
    gradient = backward.gradients["x"].name
    nodes = pruned(backward.tape.nodes, [gradient, total.name])
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(backward.tape.constants.values())
    model.graph.output.extend([onnx.ValueInfoProto(name=total.name), onnx.ValueInfoProto(name=gradient)])
    value, slope = create(model.SerializeToString(), optimized=True).run(None, {"x": x, "t": target})
    return float(value), slope


def _triplet(x: Any, t: Any, margin: float = 0.2) -> Any:
    distance = torch.sqrt(torch.clamp(torch.cdist(x, x) ** 2, min=0) + 1e-12)
    same = t[:, None] == t[None]
    far = (distance * same).max(1).values
    near = (distance + same * 1e6).min(1).values
    return torch.relu(far - near + margin).mean()


def _contrastive(x: Any, t: Any, margin: float = 0.2) -> Any:
    squared = ((x[:, None] - x[None]) ** 2).sum(-1)
    same = (t[:, None] == t[None]).double()
    return (same * squared + (1 - same) * torch.relu(margin - torch.sqrt(squared + 1e-12)) ** 2).mean()


def _kl(x: Any, t: Any, temperature: float) -> Any:
    logs = F.log_softmax(x / temperature, 1)
    return F.kl_div(logs, F.softmax(t / temperature, 1), reduction="batchmean") * temperature**2


def _der(x: Any, t: Any, keep: float) -> Any:
    known = ~torch.isnan(t[:, 1:])
    away = torch.where(known, x - torch.where(known, t[:, 1:], torch.zeros_like(x)), torch.zeros_like(x))
    return F.cross_entropy(x, t[:, 0].long()) + keep * (away**2).mean()


DARK = np.concatenate([LABELS[:, None], TARGETS], 1).astype(np.float32)
DARK[1, 1:] = DARK[4, 1:] = np.nan
EACH = torch.tensor(WEIGHTS, dtype=torch.float64)
CASES: dict[str, tuple[str, Array, Array, LossOptions, Callable[[Any, Any], Any]]] = {
    "cross-entropy": ("cross_entropy", LOGITS, LABELS, LossOptions(), F.cross_entropy),
    "of maps": ("cross_entropy", MAPS, PIXELS, LossOptions(), F.cross_entropy),
    "class weights": ("cross_entropy", LOGITS, LABELS, LossOptions(WEIGHTS), lambda x, t: F.cross_entropy(x, t, EACH)),
    "smoothing": (
        "cross_entropy",
        LOGITS,
        LABELS,
        LossOptions(label_smoothing=0.1),
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
    ),
    "ignored label": (
        "cross_entropy",
        LOGITS,
        np.array([0, -100, 2, -100, 1, 3]),
        LossOptions(ignore_index=-100),
        F.cross_entropy,
    ),
    "ignored class": (
        "cross_entropy",
        LOGITS,
        LABELS,
        LossOptions(ignore_index=2),
        lambda x, t: F.cross_entropy(x, t, ignore_index=2),
    ),
    "all of these": (
        "cross_entropy",
        LOGITS,
        LABELS,
        LossOptions(WEIGHTS, 0.2, 2),
        lambda x, t: F.cross_entropy(x, t, EACH, ignore_index=2, label_smoothing=0.2),
    ),
    "bce": ("bce", LOGITS * 4, FLAGS, LossOptions(), F.binary_cross_entropy_with_logits),
    "bce far out": ("bce", LOGITS * 100, FLAGS, LossOptions(), F.binary_cross_entropy_with_logits),
    "mse": ("mse", LOGITS, TARGETS, LossOptions(), F.mse_loss),
    "l1": ("l1", LOGITS, TARGETS, LossOptions(), F.l1_loss),
    "huber": ("huber", LOGITS * 2, TARGETS, LossOptions(delta=0.7), lambda x, t: F.huber_loss(x, t, delta=0.7)),
    "distillation": ("distill", LOGITS, TARGETS, LossOptions(temperature=3.0), lambda x, t: _kl(x, t, 3.0)),
    "distillation of logits": ("distill_mse", LOGITS, TARGETS, LossOptions(), F.mse_loss),
    "labels and stored logits": ("der", LOGITS, DARK, LossOptions(keep=0.7), lambda x, t: _der(x, t, 0.7)),
    "triplet": ("triplet", LOGITS, np.array([0, 0, 1, 1, 2, 2]), LossOptions(margin=0.5), lambda x, t: _triplet(x, t, 0.5)),
    "contrastive": (
        "contrastive",
        LOGITS,
        np.array([0, 0, 1, 1, 2, 2]),
        LossOptions(margin=4.0),
        lambda x, t: _contrastive(x, t, 4.0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_torch(name: str) -> None:
    row, x, target, options, reference = CASES[name]
    value, gradient = loss_and_gradient(row, x, target, options)
    tensor = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    expected = reference(tensor, torch.tensor(target, dtype=torch.float64 if target.dtype == np.float32 else None))
    expected.backward()
    assert value == pytest.approx(float(expected.detach()), rel=2e-5)
    assert tensor.grad is not None
    np.testing.assert_allclose(gradient, tensor.grad.numpy(), atol=2e-5 * float(tensor.grad.abs().max()))


def test_class_weights_must_be_one_per_class() -> None:
    with pytest.raises(UserError, match="3 class weights for 5 classes"):
        loss_and_gradient("cross_entropy", LOGITS, LABELS, LossOptions((1, 2, 3)))


def test_every_loss_has_a_case() -> None:
    assert {row for row, *_ in CASES.values()} == set(LOSSES)
