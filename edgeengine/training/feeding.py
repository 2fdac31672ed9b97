"""What goes into a training graph: a batch as its inputs want it, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from edgeengine.errors import UserError
from edgeengine.spec.training import DER, TrainingSpec
from edgeengine.training.state import Arrays


class Value(Protocol):
    """An input as ONNX Runtime describes it."""

    name: str
    type: str
    shape: Sequence[int | str | None]


class Feeder:
    """Makes feeds for graphs with the inputs of `values` (the gradient graph's).

    Inputs and labels have the examples along their first axis. `fixed_batch` is the model's only batch size, None where it
    is free.
    """

    def __init__(self, spec: TrainingSpec, values: Mapping[str, Value]):
        self._spec = spec
        own = {p.name for p in spec.parameters} | {s.name for s in spec.statistics} | {spec.label.name}
        self.inputs = tuple(n for n in values if n not in own)
        label = values.get(spec.label.name)
        leading = label.shape[0] if label is not None and len(label.shape) else None
        self.fixed_batch: int | None = leading if isinstance(leading, int) else None
        self.axes = {n: _batch_axis(values[n].shape, self.fixed_batch) for n in self.inputs}

    def spans(self, examples: int, micro_batch: int | None) -> list[tuple[int, int]]:
        """Where micro-batches begin and end. Raises UserError where a fixed batch does not divide them, and for none."""
        size = self.fixed_batch or (examples if micro_batch is None else micro_batch)
        if not examples:
            raise UserError("an empty batch: give at least one example")
        if size < 1:
            raise UserError(f"micro-batches of {size}: give at least 1")
        if self.fixed_batch and examples % self.fixed_batch:
            raise UserError(f"the model takes batches of {self.fixed_batch}: {examples} examples are no multiple of it")
        return [(at, min(at + size, examples)) for at in range(0, examples, size)]

    def weight(self, label: np.ndarray) -> float:
        """What examples with these labels count for in the mean loss."""
        spec = self._spec
        if not spec.classes or (spec.ignore_index is None and not spec.class_weights):
            return float(len(label))
        counted = label[label != spec.ignore_index] if spec.ignore_index is not None else label
        return float(np.asarray(spec.class_weights)[counted].sum()) if spec.class_weights else float(counted.size)

    def feeds(
        self,
        values: Mapping[str, Value],
        held: Mapping[str, np.ndarray],
        inputs: Mapping[str, np.ndarray],
        label: np.ndarray,
        span: tuple[int, int],
    ) -> Arrays:
        """Examples `span` for a graph with inputs `values`, beside the tensors `held`. Raises UserError for what does not fit."""
        start, stop = span
        cut = {n: a if self.axes.get(n) is None else a[start:stop] for n, a in inputs.items()}
        moved = {n: np.moveaxis(a, 0, axis) if (axis := self.axes.get(n)) else a for n, a in cut.items()}
        target = label[start:stop]
        _check_label(target, self._spec.label.dtype, 0 if self._spec.loss == DER else self._spec.classes, self._spec.ignore_index)
        if self._spec.loss == DER and target.ndim == 2:
            _check_label(target[:, 0], "float32", self._spec.classes, None)
        given = {**moved, self._spec.label.name: target}
        for name, array in given.items():
            if name in values:
                _check_shape(name, array, values[name].shape)
                _check_type(name, array, values[name].type)
        missing = values.keys() - held.keys() - given.keys()
        if missing:
            raise UserError(
                f"the training graphs read input {sorted(missing)[0]!r}, which is not given; known are {', '.join(inputs)}"
            )
        return {n: given[n] if n in given else held[n] for n in values}


def _check_shape(name: str, array: np.ndarray, wanted: Sequence[int | str | None]) -> None:
    shape = np.shape(array)
    if len(shape) != len(wanted) or any(isinstance(d, int) and d != s for d, s in zip(wanted, shape, strict=True)):
        raise UserError(f"{name!r} has shape {shape}, the training graphs want {tuple(wanted)}")


def _check_type(name: str, array: np.ndarray, wanted: str) -> None:
    """Raises UserError for elements of another type than `wanted`, as in "tensor(float)"."""
    element = {"float32": "float", "float64": "double"}.get(array.dtype.name, array.dtype.name)
    if not (f"tensor({element})" == wanted or (wanted == "tensor(string)" and array.dtype.kind in "OSU")):
        raise UserError(f"{name!r} holds {array.dtype}, the training graphs want {wanted}")


def _batch_axis(shape: Sequence[int | str | None], fixed_batch: int | None) -> int | None:
    """The axis over examples: the varying one, or with a fixed batch the first if it has that size; None where there is none."""
    if fixed_batch is not None:
        return 0 if shape and shape[0] == fixed_batch else None
    return next((i for i, d in enumerate(shape) if not isinstance(d, int)), None)


def _check_label(label: np.ndarray, dtype: str, classes: int, ignored: int | None) -> None:
    """Raises UserError for labels of another dtype or, where there are `classes`, out of range."""
    if label.dtype != np.dtype(dtype):
        raise UserError(f"labels are {label.dtype}, this loss wants {dtype}")
    if not classes:
        return
    wrong = (label < 0) | (label >= classes)
    if ignored is not None:
        wrong &= label != ignored
    if wrong.any():
        raise UserError(
            f"label {label[wrong].reshape(-1)[0]} is out of range: the model tells {classes} classes, 0 to {classes - 1}"
        )
