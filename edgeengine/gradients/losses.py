"""Losses: a table of rows, each emitting its forward pass on a tape. What a loss is differentiated by are the rules.

Shapes: the model's output x is [N, …] and the target as a row says; every loss is the mean over what it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgeengine.errors import UserError
from edgeengine.gradients.tape import Tape, Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LossOptions:
    """`class_weights`, one per class, `label_smoothing` (0..1) and `ignore_index` are those of torch's cross-entropy.

    `keep` is what stored logits count beside labels (der). `delta` is where Huber's loss becomes linear; `temperature` softens
    both sides of a distillation; `margin` keeps embeddings of different classes apart.
    """

    class_weights: tuple[float, ...] = ()
    label_smoothing: float = 0.0
    ignore_index: int | None = None
    delta: float = 1.0
    temperature: float = 2.0
    margin: float = 0.2
    keep: float = 0.5


@dataclass(frozen=True)
class Loss:
    """`emit(x, target, options)` gives the scalar. `target` is the dtype of the target, `target_shape` its shape from x's.

    `inverse` are final operators of a model that the loss undoes: it is taken on their input. `metric` is what an
    evaluation reports: "accuracy" (of classes, or of signs) or "loss". `classes`: labels are classes.
    """

    emit: Callable[[Tensor, Tensor, LossOptions], Tensor]
    target: str
    target_shape: Callable[[Shape], Shape]
    inverse: tuple[str, ...] = ()
    metric: str = "loss"
    classes: bool = False


def _mean(x: Tensor) -> Tensor:
    return x.mean(range(x.rank), keep=False).told(())


def _arange(tape: Tape, count: int, rank: int) -> Tensor:
    """0 … count - 1 along axis 1."""
    return tape.constant(np.arange(count).reshape(1, count, *[1] * (rank - 2)))


def _classes(x: Tensor) -> int:
    classes = x.shape[1] if x.rank >= 2 else None
    if classes is None:
        raise UserError(f"cross-entropy needs an output [N, classes, …] with a fixed number of classes; {x.name!r} has {x.shape}")
    return classes


def _cross_entropy(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """-log softmax(x)[target], weighted by class, smoothed towards all classes (weights and mean as in torch)."""
    tape, classes = x.tape, _classes(x)
    if options.class_weights and len(options.class_weights) != classes:
        raise UserError(f"{len(options.class_weights)} class weights for {classes} classes: give one per class")
    logs = x.op("LogSoftmax", axis=1)
    hot = target.unsqueeze([1]).equal(_arange(tape, classes, x.rank)).cast(x.dtype)
    if options.ignore_index is not None:
        # Ignored targets count for no class, also where the index is one.
        hot = hot * (1 - target.unsqueeze([1]).equal(options.ignore_index).cast(x.dtype))
    counted = hot.sum([1])
    weights = None
    if options.class_weights:
        each = np.array(options.class_weights, x.dtype).reshape(1, classes, *[1] * (x.rank - 2))
        weights = tape.constant(each)
        hot = hot * weights
    total = (hot * logs).sum(range(x.rank), keep=False)
    if options.label_smoothing:
        share = options.label_smoothing / classes
        spread = ((logs * weights if weights is not None else logs) * counted).sum(range(x.rank), keep=False)
        total = total * (1 - options.label_smoothing) + spread * share
    return -(total / hot.sum(range(x.rank), keep=False)).told(())


def _bce(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """log(1 + e^x) - x t: binary cross-entropy of sigmoid(x), without overflow."""
    return _mean(x.op("Softplus") - x * target)


def _mse(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    return _mean((x - target) ** 2)


def _l1(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    return _mean((x - target).op("Abs"))


def _huber(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """c (|d| - c / 2) with c = min(|d|, delta): squared near 0, linear beyond (Huber, 1964)."""
    distance = (x - target).op("Abs")
    near = x.tape.binary("Min", distance, options.delta)
    return _mean(near * (distance - near * 0.5))


def _distill(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(x / T)), the mean over examples (Hinton, Vinyals, Dean, 2015)."""
    t = options.temperature
    teacher = (target / t).op("LogSoftmax", axis=1)
    student = (x / t).op("LogSoftmax", axis=1)
    divergence = (teacher.op("Exp") * (teacher - student)).sum(range(1, x.rank), keep=False)
    return divergence.mean([0], keep=False).told(()) * (t * t)


def _der(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """-log softmax(x)[label] + keep (the mean over classes of (x - stored)^2), the mean over examples.

    `target` [N, 1 + classes] holds the label and the logits that are to be kept, NaN where there are none. (Buzzega, Boschini,
    Porrello, Abati, Calderara, "Dark Experience for General Continual Learning", NeurIPS 2020: DER++.)
    """
    if options.class_weights or options.ignore_index is not None or options.label_smoothing or x.rank != 2:
        raise UserError("the loss der takes outputs [N, classes], and no class weights, smoothing or ignored label")
    tape, classes = x.tape, _classes(x)
    label, stored = target.slice(1, 0, 1).told((x.shape[0], 1)), target.slice(1, 1).told(x.shape)
    hot = label.equal(tape.constant(np.arange(classes, dtype=x.dtype).reshape(1, classes))).cast(x.dtype)
    entropy = -(hot * x.op("LogSoftmax", axis=1)).sum([1], keep=False)
    unknown = tape.emit("IsNaN", stored, dtype="bool", shape=x.known)
    kept = tape.emit("Where", unknown, tape.scalar(0.0, x.dtype), stored, dtype=x.dtype, shape=x.known)
    away = (x - kept) * (1 - unknown.cast(x.dtype))
    return _mean(entropy + (away * away).mean([1], keep=False) * options.keep)


def _distances(x: Tensor) -> Tensor:
    """[N, N]: squared Euclidean distances between the examples' embeddings."""
    flat = x.reshape([0, -1]).told((x.shape[0], None)) if x.rank > 2 else x
    squares = (flat * flat).sum([1])
    products = flat @ flat.transpose([1, 0])
    pair = (x.shape[0], x.shape[0])
    return x.tape.binary("Max", (squares - products * 2.0 + squares.transpose([1, 0])).told(pair), 0.0).told(pair)


def _same_class(x: Tensor, target: Tensor) -> Tensor:
    """[N, N]: 1 where two examples have the same label."""
    pair = (x.shape[0], x.shape[0])
    return target.unsqueeze([0]).equal(target.unsqueeze([1])).told(pair).cast(x.dtype)


def _triplet(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """For every example: margin + its farthest of the same class - its nearest of another, at least 0.

    Batch-hard triplets (Hermans, Beyer, Leibe, "In Defense of the Triplet Loss for Person Re-Identification", 2017).
    """
    distance = (_distances(x) + 1e-12).op("Sqrt")
    same = _same_class(x, target)
    axes = x.tape.ints([1])
    farthest = x.tape.emit("ReduceMax", distance * same, axes, shape=(x.shape[0],), keepdims=0)
    nearest = x.tape.emit("ReduceMin", distance + same * 1e6, axes, shape=(x.shape[0],), keepdims=0)
    return _mean((farthest - nearest + options.margin).op("Relu"))


def _contrastive(x: Tensor, target: Tensor, options: LossOptions) -> Tensor:
    """d^2 for two of one class, max(0, margin - d)^2 for two of different ones, over all pairs of the batch.

    Source: Hadsell, Chopra, LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", 2006.
    """
    squared, same = _distances(x), _same_class(x, target)
    apart = (options.margin - (squared + 1e-12).op("Sqrt")).op("Relu")
    return _mean(same * squared + (1 - same) * apart * apart)


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(
        _cross_entropy, "int64", lambda s: (s[0], *s[2:]), inverse=("Softmax", "LogSoftmax"), metric="accuracy", classes=True
    ),
    "der": Loss(_der, "float32", lambda s: (s[0], 1 + s[1]), inverse=("Softmax", "LogSoftmax"), metric="accuracy", classes=True),
    "bce": Loss(_bce, "float32", lambda s: s, inverse=("Sigmoid",), metric="accuracy"),
    "mse": Loss(_mse, "float32", lambda s: s),
    "l1": Loss(_l1, "float32", lambda s: s),
    "huber": Loss(_huber, "float32", lambda s: s),
    "distill": Loss(_distill, "float32", lambda s: s, inverse=("Softmax", "LogSoftmax")),
    "distill_mse": Loss(_mse, "float32", lambda s: s, inverse=("Softmax", "LogSoftmax", "Sigmoid")),
    "triplet": Loss(_triplet, "int64", lambda s: (s[0],)),
    "contrastive": Loss(_contrastive, "int64", lambda s: (s[0],)),
}


def find_loss(name: str) -> Loss:
    """Raises UserError for a name that is not in the table."""
    if name not in LOSSES:
        raise UserError(f"no loss {name!r}; there are {_listed(list(LOSSES))}")
    return LOSSES[name]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
