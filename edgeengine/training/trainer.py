"""Train from a bundle: gradients, then the optimizer, then a commit that swaps the whole state at once.

Gradients run where the caller says, the optimizer on the CPU with float32 master weights: a whole step in float16 would
lose small updates. `step` does it all; `begin` gives the same step as micro-steps, to whoever runs them between other work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.errors import InternalError, UserError
from edgeengine.spec import Placement
from edgeengine.spec.training import DER
from edgeengine.training.feeding import Feeder, Value
from edgeengine.training.graphs import Gradients, StepGraphs, StepResult, training_session
from edgeengine.training.placed import On
from edgeengine.training.state import Arrays, TrainingState, start_of, training_spec
from edgeengine.training.step import MicroBatch, PendingStep


@dataclass(frozen=True)
class Evaluation:
    """Means over all examples. `metric` is the accuracy (0..1) where the loss has one, else the loss."""

    loss: float
    metric: float
    examples: int


class Trainer:
    """Holds a bundle's training graphs open and the state they train.

    Inputs and labels have the examples along their first axis, also where the model has its batch along another.

    `threads` are each session's. `on` runs the gradient graph elsewhere than on this process's CPU, in batches of a fixed
    size; `cut` runs it in the parts the bundle has of it, whole otherwise. `state` continues from an earlier one. Raises
    UserError for a bundle without training graphs, DeviceError where `on` does not take the gradient graph.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int = 1,
        cut: bool = False,
        on: On | None = None,
        state: TrainingState | None = None,
    ):
        self.bundle, self.spec = bundle, training_spec(bundle)
        self.state = state or start_of(bundle)
        self._threads = threads
        self._graphs = StepGraphs(bundle, threads, cut, on)
        self._feeder = Feeder(self.spec, self._graphs.inputs)

    @cached_property
    def _evaluating(self) -> ort.InferenceSession:
        return training_session(self.bundle.path / self.spec.evaluation, self._threads)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The model's inputs that training reads, without the label."""
        return self._feeder.inputs

    @property
    def fixed_batch(self) -> int | None:
        """The only batch size of the model, None where it is free."""
        return self._feeder.fixed_batch

    @property
    def placements(self) -> dict[str, Placement]:
        """What a processor took of the gradient graph, by part; empty on this process's CPU."""
        return self._graphs.placements

    def batch_axis(self, name: str) -> int | None:
        """Where the model has the batch of input `name`; None where that input has none."""
        return self._feeder.axes[name]

    def open(self) -> None:
        """Make the sessions that `begin` needs now, not in its first micro-steps."""
        self._graphs.open()

    def gradients(
        self, inputs: Mapping[str, np.ndarray], label: np.ndarray, state: TrainingState | None = None
    ) -> Gradients:  # fmt: skip
        """Of all the examples given, as one micro-batch, at the present state or one that is given. Changes nothing."""
        at = state or self.state
        tensors = self._feeder.feeds(self._graphs.inputs, at.parameters | at.statistics, inputs, label, (0, len(label)))
        for part in range(len(self._graphs.names)):
            tensors = self._graphs.run(part, tensors)
        return self._graphs.gradients(tensors, self._feeder.weight(label))

    def begin(
        self, inputs: Mapping[str, np.ndarray], label: np.ndarray, lr: float, micro_batch: int | None = None
    ) -> PendingStep:
        """One optimizer step on a batch, nothing of it run yet, in micro-batches of at most `micro_batch` examples.

        Its micro-steps are, per micro-batch, the parts of the gradient graph, and at last the optimizer; see PendingStep. The
        mean over micro-batches is the batch's: weighted by their examples, or by the weights of their labels. Raises
        UserError for inputs or labels that do not fit.
        """
        spans = self._feeder.spans(len(label), micro_batch)
        batches = [
            MicroBatch(self._feeds(self._graphs.inputs, inputs, label, s), s[1] - s[0], self._feeder.weight(label[slice(*s)]))
            for s in spans
        ]
        return PendingStep(self._graphs, self.state, batches, lr, self._replace)

    def step(self, inputs: Mapping[str, np.ndarray], label: np.ndarray, lr: float, micro_batch: int | None = None) -> StepResult:
        """The step of `begin`, made and committed; in a single run where the batch is a single one.

        Raises StepRefused for a loss or gradient that is not finite; then the state is as before.
        """
        spans = self._feeder.spans(len(label), micro_batch)
        if len(spans) == 1 and self._graphs.is_whole:
            feeds = self._feeds(self._graphs.inputs, inputs, label, spans[0])
            self.state, result = self._graphs.whole(self.state, feeds, lr)
            return result
        pending = self.begin(inputs, label, lr, micro_batch)
        for run in pending.micro_steps:
            run()
        return pending.commit()

    def apply(self, total: Gradients, lr: float) -> StepResult:
        """The optimizer's part of a step, and the commit. Raises StepRefused as `step` does."""
        self.state, result = self._graphs.update(self.state, total, lr)
        return result

    def evaluate(self, inputs: Mapping[str, np.ndarray], label: np.ndarray, batch: int = 64) -> Evaluation:
        """Loss and metric over all examples, in batches. Raises UserError where there are fewer than a batch needs."""
        size = self.fixed_batch or batch
        stop = len(label) - len(label) % size if self.fixed_batch else len(label)
        if not stop:
            raise UserError(f"{len(label)} examples to evaluate: give at least {size}")
        values = {i.name: i for i in self._evaluating.get_inputs()}
        loss = metric = 0.0
        for span in self._feeder.spans(stop, size):
            part = label[slice(*span)]
            feeds = self._feeds(values, inputs, label, span)
            value, prediction = self._evaluating.run([self.spec.loss_output, self.spec.prediction], feeds)
            loss += float(np.asarray(value).reshape(())) * len(part)
            metric += self._accuracy(np.asarray(prediction), part) * len(part)
        mean = loss / stop
        return Evaluation(mean, metric / stop if self.spec.metric == "accuracy" else mean, stop)

    def predictions(self, inputs: Mapping[str, np.ndarray], batch: int = 64) -> np.ndarray:
        """What the loss is taken on, by the present state: with classes their logits, float32 [n, classes]."""
        count, size = len(next(iter(inputs.values()))), self.fixed_batch or batch
        values = {i.name: i for i in self._evaluating.get_inputs()}
        any_label = np.zeros((count, *(int(d) for d in self.spec.label.shape[1:] if isinstance(d, int))), self.spec.label.dtype)
        found = [
            self._evaluating.run([self.spec.prediction], self._feeds(values, inputs, any_label, span))[0]
            for span in self._feeder.spans(count, size)
        ]
        return np.concatenate(found)

    def version(self, state: TrainingState | None = None) -> Arrays:
        """The tensors that override the bundle's weights of the same names: parameters, statistics, merged adapters.

        Of the present state, or one that is given.
        """
        spec, state = self.spec, state or self.state
        own = {p.name: state.parameters[p.name] for p in spec.parameters if p.offset >= 0}
        if spec.merge:
            merge = training_session(self.bundle.path / spec.merge)
            feeds = {i.name: state.parameters[i.name] for i in merge.get_inputs()}
            own |= dict(zip(spec.merged, merge.run([f"{m}/next" for m in spec.merged], feeds), strict=True))
        return own | state.statistics

    def _replace(self, before: TrainingState, after: TrainingState) -> None:
        if self.state is not before:
            raise InternalError(f"step {after.step} began before another that was committed; begin it anew")
        self.state = after

    def _feeds(
        self, values: Mapping[str, Value], inputs: Mapping[str, np.ndarray], label: np.ndarray, span: tuple[int, int]
    ) -> Arrays:
        return self._feeder.feeds(values, self.state.parameters | self.state.statistics, inputs, label, span)

    def _accuracy(self, prediction: np.ndarray, label: np.ndarray) -> float:
        if self.spec.metric != "accuracy":
            return 0.0
        if self.spec.loss == DER:
            label = label[:, 0]
        if self.spec.loss == "bce":
            return float(np.mean((prediction > 0) == (label > 0.5)))
        counted = label != self.spec.ignore_index if self.spec.ignore_index is not None else np.ones(label.shape, bool)
        hits = (prediction.argmax(1) == label) & counted
        return float(hits.sum() / max(int(counted.sum()), 1))
