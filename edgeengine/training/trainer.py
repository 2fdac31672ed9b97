"""Train from a bundle: gradients, then the optimizer, then a commit that swaps the whole state at once.

A step is a chain of runs without side effects: gradients of one or more micro-batches, whose mean the optimizer applies.
Until the commit, giving it up loses nothing. Two sessions per step: gradients where the caller's session options put
them, the optimizer on the CPU with float32 master weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training.state import Arrays, TrainingState, start_of, training_spec


class StepRefused(UserError):
    """A step that was not made, because its loss or gradient is not finite. The weights are as before."""


@dataclass(frozen=True)
class Gradients:
    """Of one micro-batch of `examples`: the loss, a gradient per parameter, new values of running statistics."""

    loss: float
    gradients: Arrays
    statistics: Arrays
    examples: int


@dataclass(frozen=True)
class StepResult:
    """The mean loss of the batch before the step, and the norm of its gradient before clipping."""

    loss: float
    gradient_norm: float


@dataclass(frozen=True)
class Evaluation:
    """Means over all examples. `metric` is the accuracy (0..1) where the loss has one, else the loss."""

    loss: float
    metric: float
    examples: int


class Trainer:
    """Holds a bundle's training graphs open and the state they train.

    Inputs and labels have the examples along their first axis, also where the model has its batch along another.

    `threads` are each session's; `providers` run the gradient graph (the CPU by default). `state` continues from an
    earlier one. Raises UserError for a bundle without training graphs.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        providers: tuple[str, ...] = ("CPUExecutionProvider",),
        state: TrainingState | None = None,
    ):
        self.bundle, self.spec = bundle, training_spec(bundle)
        self.state = state or start_of(bundle)
        self._providers, self._threads = providers, threads
        self._gradient = _session(bundle.path / self.spec.gradient, threads, providers)
        self._optimizer = _session(bundle.path / self.spec.optimizer, 1, ("CPUExecutionProvider",))
        self._evaluation: ort.InferenceSession | None = None
        shapes = {i.name: i.shape for i in self._gradient.get_inputs()}
        leading = shapes.get(self.spec.label.name) or [None]
        self.fixed_batch: int | None = leading[0] if isinstance(leading[0], int) else None
        self._axes = {n: _batch_axis(shapes[n], self.fixed_batch) for n in self.inputs}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The model's inputs that training reads, without the label."""
        own = {p.name for p in self.spec.parameters} | {s.name for s in self.spec.statistics} | {self.spec.label.name}
        return tuple(i.name for i in self._gradient.get_inputs() if i.name not in own)

    def batch_axis(self, name: str) -> int | None:
        """Where the model has the batch of input `name`; None where that input has none."""
        return self._axes[name]

    def gradients(self, inputs: Mapping[str, np.ndarray], label: np.ndarray) -> Gradients:
        """One micro-step over all the examples given. Changes nothing."""
        spec = self.spec
        feeds = self._feeds(self._gradient, self._batched(inputs), label)
        names = [spec.loss_output, *(p.gradient for p in spec.parameters), *(s.next for s in spec.statistics)]
        loss, *rest = self._gradient.run(names, feeds)
        count = len(spec.parameters)
        gradients = {p.name: g for p, g in zip(spec.parameters, rest[:count], strict=True)}
        statistics = {s.name: v for s, v in zip(spec.statistics, rest[count:], strict=True)}
        return Gradients(float(np.asarray(loss).reshape(())), gradients, statistics, len(label))

    def step(self, inputs: Mapping[str, np.ndarray], label: np.ndarray, lr: float, micro_batch: int | None = None) -> StepResult:
        """One optimizer step on a batch, in micro-batches of at most `micro_batch` examples, committed at its end.

        The mean over micro-batches is weighted by their examples. Raises StepRefused for a loss or gradient that is not
        finite, and UserError for inputs or labels that do not fit; then the state is as before.
        """
        size = self.fixed_batch or micro_batch or len(label)
        if self.fixed_batch and len(label) % self.fixed_batch:
            raise UserError(f"the model takes batches of {self.fixed_batch}: {len(label)} examples are no multiple of it")
        total: Gradients | None = None
        for at in range(0, len(label), size):
            part = self.gradients(self._part(inputs, at, at + size), label[at : at + size])
            total = part if total is None else added(total, part)
        if total is None:
            raise UserError("an empty batch: give at least one example")
        return self.apply(total, lr)

    def apply(self, total: Gradients, lr: float) -> StepResult:
        """The optimizer's part of a step, and the commit."""
        if not np.isfinite(total.loss):
            raise StepRefused(f"step {self.state.step + 1}: the loss is {total.loss}; lower --lr or look for broken examples")
        state = self.state
        feeds = {p.gradient: total.gradients[p.name] for p in self.spec.parameters} | state.parameters | state.slots
        feeds |= {"lr": np.array(lr, np.float32), "step": np.array(state.step + 1, np.float32)}
        names = [o.name for o in self._optimizer.get_outputs()]
        wanted = {i.name for i in self._optimizer.get_inputs()}
        updated = dict(zip(names, self._optimizer.run(names, {n: a for n, a in feeds.items() if n in wanted}), strict=True))
        norm = float(updated["gradient_norm"])
        if not np.isfinite(norm):
            raise StepRefused(f"step {state.step + 1}: the gradient is not finite; lower --lr or look for broken examples")
        self.state = TrainingState(
            parameters={n: updated[f"{n}/next"] for n in state.parameters},
            statistics=total.statistics or state.statistics,
            slots={n: updated[f"{n}/next"] for n in state.slots},
            step=state.step + 1,
        )
        return StepResult(total.loss, norm)

    def evaluate(self, inputs: Mapping[str, np.ndarray], label: np.ndarray, batch: int = 64) -> Evaluation:
        """Loss and metric over all examples, in batches. Raises UserError where there are fewer than a batch needs."""
        size = self.fixed_batch or batch
        stop = len(label) - len(label) % size if self.fixed_batch else len(label)
        if not stop:
            raise UserError(f"{len(label)} examples to evaluate: give at least {size}")
        if self._evaluation is None:
            self._evaluation = _session(self.bundle.path / self.spec.evaluation, self._threads, self._providers)
        loss = metric = 0.0
        for at in range(0, stop, size):
            part = label[at : min(at + size, stop)]
            feeds = self._feeds(self._evaluation, self._batched(self._part(inputs, at, at + size)), part)
            value, prediction = self._evaluation.run([self.spec.loss_output, self.spec.prediction], feeds)
            loss += float(np.asarray(value).reshape(())) * len(part)
            metric += self._accuracy(np.asarray(prediction), part) * len(part)
        mean = loss / stop
        return Evaluation(mean, metric / stop if self.spec.metric == "accuracy" else mean, stop)

    def version(self, state: TrainingState | None = None) -> Arrays:
        """The tensors that override the bundle's weights of the same names: parameters, statistics, merged adapters.

        Of the present state, or one that is given.
        """
        spec, state = self.spec, state or self.state
        own = {p.name: state.parameters[p.name] for p in spec.parameters if p.offset >= 0}
        if spec.merge:
            merge = _session(self.bundle.path / spec.merge, 1, ("CPUExecutionProvider",))
            feeds = {i.name: state.parameters[i.name] for i in merge.get_inputs()}
            own |= dict(zip(spec.merged, merge.run([f"{m}/next" for m in spec.merged], feeds), strict=True))
        return own | state.statistics

    def _part(self, inputs: Mapping[str, np.ndarray], start: int, stop: int) -> Arrays:
        """Examples [start, stop); inputs without a batch as they are."""
        return {n: a if self._axes.get(n) is None else a[start:stop] for n, a in inputs.items()}

    def _batched(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The examples' axis where the model has its batch."""
        moved = ((n, a, self._axes.get(n)) for n, a in inputs.items())
        return {n: np.moveaxis(a, 0, axis) if axis else a for n, a, axis in moved}

    def _accuracy(self, prediction: np.ndarray, label: np.ndarray) -> float:
        if self.spec.metric != "accuracy":
            return 0.0
        if self.spec.loss == "bce":
            return float(np.mean((prediction > 0) == (label > 0.5)))
        counted = label != self.spec.ignore_index if self.spec.ignore_index is not None else np.ones(label.shape, bool)
        hits = (prediction.argmax(1) == label) & counted
        return float(hits.sum() / max(int(counted.sum()), 1))

    def _feeds(self, session: ort.InferenceSession, inputs: Mapping[str, np.ndarray], label: np.ndarray) -> Arrays:
        _check_label(label, self.spec.label.dtype, self.spec.classes, self.spec.ignore_index)
        feeds = {self.spec.label.name: label, **self.state.parameters, **self.state.statistics, **inputs}
        wanted = {i.name: i for i in session.get_inputs()}
        for name, value in wanted.items():
            if name not in feeds:
                raise UserError(f"the training graphs read input {name!r}, which is not given; known are {', '.join(inputs)}")
            shape = np.shape(feeds[name])
            fits = len(shape) == len(value.shape) and all(
                isinstance(d, str) or d is None or d == s for d, s in zip(value.shape, shape, strict=True)
            )
            if not fits:
                raise UserError(f"{name!r} has shape {shape}, the training graphs want {value.shape}")
        return {n: feeds[n] for n in wanted}


def _batch_axis(shape: Sequence[int | str | None], fixed_batch: int | None) -> int | None:
    """The axis over examples: the varying one, or with a fixed batch the first if it has that size; None where there is none."""
    if fixed_batch is not None:
        return 0 if shape and shape[0] == fixed_batch else None
    return next((i for i, d in enumerate(shape) if not isinstance(d, int)), None)


def _check_label(label: np.ndarray, dtype: str, classes: int, ignored: int | None) -> None:
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


def added(a: Gradients, b: Gradients) -> Gradients:
    """The mean of both, weighted by examples; the later statistics."""
    examples = a.examples + b.examples
    left, right = np.float32(a.examples / examples), np.float32(b.examples / examples)
    return Gradients(
        a.loss * float(left) + b.loss * float(right),
        {n: left * g + right * b.gradients[n] for n, g in a.gradients.items()},
        b.statistics,
        examples,
    )


def _session(file: Path, threads: int, providers: tuple[str, ...]) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(file), options, providers=list(providers))
