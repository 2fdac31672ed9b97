"""The closed-form head: a linear last layer solved by least squares from sums over samples. No gradient, no order, no replay.

With features x (a one appended for the bias) and targets y, +1 for the sample's class and -1 for the others, the sums
G = sum w x x^T and c = sum w x y^T are all that is ever kept. The head is (G + l I)^-1 c, l = `ridge` times the mean of G's
diagonal. (Hoerl, Kennard, "Ridge Regression", 1970; streaming sums as in incremental least squares. One-shot layers below
gradient ones: Vahdatpour et al., "The Energy-Efficient Hierarchical Neural Network with Fast FPGA-Based Incremental Learning",
2025.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.spec.training import HeadSpec
from edgeengine.training.serving import session_of
from edgeengine.training.state import Arrays, training_spec

GAIN = 3.0
"""Scores of +1 for a class and -1 for six others become a probability of 98.5 %."""


@dataclass(frozen=True)
class Sums:
    """`gram` float64 [width + 1, width + 1], `cross` float64 [width + 1, classes], `weight` per class, float64 [classes]."""

    gram: np.ndarray
    cross: np.ndarray
    weight: np.ndarray

    @staticmethod
    def zeros(width: int, classes: int) -> Sums:
        return Sums(np.zeros((width + 1, width + 1)), np.zeros((width + 1, classes)), np.zeros(classes))

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.gram + other.gram, self.cross + other.cross, self.weight + other.weight)

    def __mul__(self, factor: float) -> Sums:
        return Sums(self.gram * factor, self.cross * factor, self.weight * factor)


def sums_of(features: np.ndarray, label: np.ndarray, classes: int, weight: float | np.ndarray = 1.0) -> Sums:
    """The sums over samples: features float [n, width], labels int [n], a weight for all or each."""
    x = np.concatenate([features, np.ones((len(features), 1), features.dtype)], axis=1).astype(np.float64)
    target = np.where(np.arange(classes) == label[:, None], 1.0, -1.0)
    each = np.broadcast_to(np.asarray(weight, np.float64), len(label))
    weighted = x * each[:, None]
    return Sums(weighted.T @ x, weighted.T @ target, np.bincount(label, each, classes))


def solve(sums: Sums, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """W [width, classes] and b [classes], float64, for y = x W + b; the bias is free. Raises UserError without samples."""
    if not sums.weight.sum() > 0:
        raise UserError("the closed-form head has seen no sample; give it some before it is solved")
    width = len(sums.gram) - 1
    penalty = np.zeros(width + 1)
    penalty[:width] = ridge * np.trace(sums.gram[:width, :width]) / width
    solution = np.linalg.solve(sums.gram + np.diag(np.maximum(penalty, 1e-9)), sums.cross)
    return solution[:width], solution[width]


def least_squares(features: np.ndarray, scores: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """W [width, classes] and b [classes], float64, that come nearest to any `scores`, float64 [n, classes]."""
    x = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    return solve(Sums(x.T @ x, x.T @ scores, np.ones(scores.shape[1])), ridge)


class RidgeHead:
    """The closed-form head of a bundle: `observe` samples, `version` solves.

    Raises UserError for a bundle whose last layer is not linear, or that has no training graphs.
    """

    def __init__(self, bundle: Bundle, *, ridge: float = 1e-3, threads: int = 1):
        spec = training_spec(bundle)
        self.spec = _head_of(bundle)
        self.bundle, self.ridge = bundle, ridge
        self.inputs = tuple(i.name for i in bundle.manifest.inputs)
        self.sums = Sums.zeros(self.spec.width, self.spec.classes)
        self._label = spec.label.name
        self._session = session_of(bundle.path / self.spec.features, {}, threads)

    def features(self, inputs: Mapping[str, np.ndarray], batch: int = 64) -> np.ndarray:
        """What the last layer reads, float32 [n, width]."""
        count = len(next(iter(inputs.values())))
        parts = []
        for at in range(0, count, batch):
            feeds = {i.name: inputs[i.name][at : at + batch] for i in self._session.get_inputs()}
            parts.append(np.asarray(self._session.run([self.spec.tensor], feeds)[0]))
        return np.concatenate(parts) if parts else np.zeros((0, self.spec.width), np.float32)

    def observe(self, inputs: Mapping[str, np.ndarray], label: np.ndarray, weight: float = 1.0) -> None:
        """Add samples to the sums; a negative weight takes them out again (up to rounding)."""
        self.sums = self.sums + self.sums_of(inputs, label, weight)

    def sums_of(self, inputs: Mapping[str, np.ndarray], label: np.ndarray, weight: float = 1.0) -> Sums:
        """The sums of these samples alone."""
        return sums_of(self.features(inputs), label, self.spec.classes, weight)

    def version(self, sums: Sums | None = None) -> Arrays:
        """The head's two tensors, float32, as the model wants them.

        Scores of least squares lie about in -1..1: times GAIN they are logits to take a softmax of. Their order stays.
        """
        weight, bias = solve(sums or self.sums, self.ridge)
        return self.as_version(weight * GAIN, bias * GAIN)

    def as_version(self, weight: np.ndarray, bias: np.ndarray) -> Arrays:
        """W [width, classes] and b [classes] as the model wants them, float32."""
        turned = weight.T if self.spec.transposed else weight
        shaped = bias.reshape(self.spec.bias_shape)
        return {self.spec.weight: np.ascontiguousarray(turned, np.float32), self.spec.bias: shaped.astype(np.float32)}

    def of_version(self, version: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """W and b, the other way round. Raises UserError for a version that does not consist of a head."""
        if version.keys() != {self.spec.weight, self.spec.bias}:
            raise UserError(f"{self.bundle.path}: the version is not a head alone; heads are learned with method 'head'")
        weight = version[self.spec.weight]
        return np.ascontiguousarray(weight.T if self.spec.transposed else weight), version[self.spec.bias].reshape(-1)

    def tensors(self) -> Arrays:
        return {"ridge:gram": self.sums.gram, "ridge:cross": self.sums.cross, "ridge:weight": self.sums.weight}

    def restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Take over what `tensors` gave. Raises UserError where it is another bundle's."""
        kept = {n: tensors.get(f"ridge:{n}") for n in ("gram", "cross", "weight")}
        for name, array in self.tensors().items():
            if name not in tensors or tensors[name].shape != array.shape:
                raise UserError(f"{self.bundle.path}: the state kept there is no closed-form head of this bundle ({name!r})")
        self.sums = Sums(*(np.array(a, np.float64) for a in kept.values()))


def _head_of(bundle: Bundle) -> HeadSpec:
    head = training_spec(bundle).head
    if head is None:
        raise UserError(f"{bundle.path}: its last layer is no linear one with a bias of its own; train it by gradients instead")
    return head


def predictions(session: ort.InferenceSession, output: str, inputs: Mapping[str, np.ndarray], batch: int = 64) -> np.ndarray:
    """The classes that a session gives, int64 [n]."""
    count = len(next(iter(inputs.values())))
    scores = [
        np.asarray(session.run([output], {n: a[at : at + batch] for n, a in inputs.items()})[0]) for at in range(0, count, batch)
    ]
    chosen: np.ndarray = np.concatenate(scores).argmax(1)
    return chosen
