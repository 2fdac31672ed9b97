"""The graphs of a training step as sessions: the gradient graph, whole or in parts, and the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.spec import Placement
from edgeengine.training.placed import On, PlacedGraph
from edgeengine.training.state import Arrays, TrainingState, training_spec


class Graph(Protocol):
    """What is needed of a session."""

    def get_inputs(self) -> Sequence[Any]: ...

    def get_outputs(self) -> Sequence[Any]: ...

    def run(self, names: Sequence[str], feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]: ...


class StepRefused(UserError):
    """A step that was not made, because its loss or gradient is not finite. The weights are as before."""


@dataclass(frozen=True)
class Gradients:
    """Of some examples: the mean loss, a gradient per parameter, new values of running statistics.

    `weight` is what the mean counts: the number of examples, or where labels are ignored or classes weighted, the sum of
    their weights.
    """

    loss: float
    gradients: Arrays
    statistics: Arrays
    weight: float

    def __add__(self, other: Gradients) -> Gradients:
        """The mean of both; the later statistics. What counts for nothing (its mean is 0 / 0) is left out."""
        if not self.weight or not other.weight:
            return replace(self if self.weight else other, statistics=other.statistics)
        total = self.weight + other.weight
        left, right = np.float32(self.weight / total), np.float32(other.weight / total)
        return Gradients(
            self.loss * float(left) + other.loss * float(right),
            {n: left * g + right * other.gradients[n] for n, g in self.gradients.items()},
            other.statistics,
            total,
        )


@dataclass(frozen=True)
class StepResult:
    """The mean loss of the batch before the step, and the norm of its gradient before clipping."""

    loss: float
    gradient_norm: float


class StepGraphs:
    """Runs the parts of the gradient graph in order, each on what it reads of the tensors made so far; then the optimizer.

    Or both in one run (`whole`), where nothing asks for parts. `names` are those of the parts. Sessions are made when they
    are first needed; nothing here changes a state: new tensors come of old ones.
    """

    def __init__(self, bundle: Bundle, threads: int, cut: bool, on: On | None):
        self.spec = spec = training_spec(bundle)
        self._bundle, self._threads, self._on = bundle, threads, on
        self._files = {m.name: m.file for m in spec.parts} if cut and spec.parts else {"gradient": spec.gradient}
        self.names = tuple(self._files)
        self.is_whole = len(self._files) == 1 and on is None
        self._slots = {f"{p.name}/{s}" for p in spec.parameters for s in spec.slots}

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the gradient graph as ONNX Runtime describes them."""
        if self.is_whole:
            return {i.name: i for i in self._whole.session.get_inputs() if i.name not in {*self._slots, "lr", "step"}}
        passed = {o.name for s in self._parts for o in s.get_outputs()}
        return {i.name: i for s in self._parts for i in s.get_inputs() if i.name not in passed}

    @cached_property
    def _parts(self) -> list[Graph]:
        on, bundle = self._on, self._bundle
        return [
            PlacedGraph(bundle, name, file, on) if on is not None else training_session(bundle.path / file, self._threads)
            for name, file in self._files.items()
        ]

    @cached_property
    def _flow(self) -> list[tuple[list[str], list[str], frozenset[str]]]:
        """Of each part: what it reads, what it makes that is needed, and what is needed after it."""
        spec, flow = self.spec, list[tuple[list[str], list[str], frozenset[str]]]()
        kept = {spec.loss_output, *(p.gradient for p in spec.parameters), *(s.next for s in spec.statistics)}
        for part in reversed(self._parts):
            reads, made = [i.name for i in part.get_inputs()], [o.name for o in part.get_outputs()]
            flow.append((reads, [t for t in made if t in kept], frozenset(kept)))
            kept |= set(reads)
        return flow[::-1]

    @cached_property
    def _optimizer(self) -> _Optimizing:
        return _Optimizing(self._bundle.path / self.spec.optimizer, 1)

    @cached_property
    def _whole(self) -> _Optimizing:
        return _Optimizing(self._bundle.path / self.spec.step, self._threads)

    def open(self) -> None:
        """Make the sessions of a step in micro-steps now: the first of these would take many times as long otherwise."""
        _ = self._flow, self._optimizer

    @property
    def placements(self) -> dict[str, Placement]:
        """What a processor took of each part, where it is not the CPU of this process."""
        placed = ((n, p.placement) for n, p in zip(self.names, self._parts, strict=True) if isinstance(p, PlacedGraph))
        return {name: placement for name, placement in placed if placement is not None}

    def run(self, part: int, tensors: Mapping[str, np.ndarray]) -> Arrays:
        """Part `part`: what it made, and of `tensors` what is still needed after it."""
        reads, makes, keeps = self._flow[part]
        made = self._parts[part].run(makes, {n: tensors[n] for n in reads})
        kept = {n: a for n, a in tensors.items() if n in keeps}
        return kept | dict(zip(makes, made, strict=True))

    def gradients(self, tensors: Mapping[str, np.ndarray], weight: float) -> Gradients:
        """What the last part left, sorted."""
        spec = self.spec
        return Gradients(
            loss=float(tensors[spec.loss_output].reshape(())),
            gradients={p.name: tensors[p.gradient] for p in spec.parameters},
            statistics={s.name: tensors[s.next] for s in spec.statistics},
            weight=weight,
        )

    def update(self, state: TrainingState, total: Gradients, lr: float) -> tuple[TrainingState, StepResult]:
        """The state after `state`. Raises StepRefused for a loss or gradient that is not finite."""
        _check_loss(total.loss, state.step + 1)
        feeds = {p.gradient: total.gradients[p.name] for p in self.spec.parameters} | state.parameters | state.slots
        made = self._optimizer.run(feeds, state.step + 1, lr)
        return self._after(state, made, total.loss, total.statistics)

    def whole(self, state: TrainingState, feeds: Arrays, lr: float) -> tuple[TrainingState, StepResult]:
        """Gradients and optimizer in one run, on the feeds of the gradient graph. Raises StepRefused as `update` does."""
        made = self._whole.run(feeds | state.slots, state.step + 1, lr)
        loss = float(made[self.spec.loss_output].reshape(()))
        _check_loss(loss, state.step + 1)
        return self._after(state, made, loss, {s.name: made[s.next] for s in self.spec.statistics})

    def _after(
        self, state: TrainingState, made: Mapping[str, np.ndarray], loss: float, statistics: Arrays
    ) -> tuple[TrainingState, StepResult]:
        norm = float(made["gradient_norm"])
        if not np.isfinite(norm):
            raise StepRefused(f"step {state.step + 1}: the gradient is not finite; lower --lr or look for broken examples")
        after = TrainingState(
            parameters={n: made[f"{n}/next"] for n in state.parameters},
            statistics=statistics or state.statistics,
            slots={n: made[f"{n}/next"] for n in state.slots},
            step=state.step + 1,
        )
        return after, StepResult(loss, norm)


def _check_loss(loss: float, step: int) -> None:
    if not np.isfinite(loss):
        raise StepRefused(f"step {step}: the loss is {loss}; lower --lr or look for broken examples")


class _Optimizing:
    """A session with the optimizer in it, its names looked up once. It has an input `step` only where its rule reads it."""

    def __init__(self, file: Path, threads: int):
        self.session = training_session(file, threads)
        self.reads = [i.name for i in self.session.get_inputs()]
        self.makes = [o.name for o in self.session.get_outputs()]

    def run(self, feeds: Mapping[str, np.ndarray], step: int, lr: float) -> Arrays:
        known = {**feeds, "lr": np.array(lr, np.float32), "step": np.array(step, np.float32)}
        made = self.session.run(self.makes, {n: known[n] for n in self.reads})
        return dict(zip(self.makes, made, strict=True))


def training_session(file: Path, threads: int = 1) -> ort.InferenceSession:
    """A session on one training graph, on the CPU; its threads do not spin while others work."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A pattern is a second block of memory beside what the first run took, which stays: 113 MB instead of 66 for a MobileNet's
    # step of 16 images, for 0 to 6 % of its time.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
