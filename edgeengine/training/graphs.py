"""The graphs of a training step as sessions: the gradient graph, whole or in parts, and the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training.state import Arrays, TrainingState, training_spec

CPU = ("CPUExecutionProvider",)


class StepRefused(UserError):
    """A step that was not made, because its loss or gradient is not finite. The weights are as before."""


@dataclass(frozen=True)
class Gradients:
    """Of `examples` examples: the mean loss, a gradient per parameter, new values of running statistics."""

    loss: float
    gradients: Arrays
    statistics: Arrays
    examples: int

    def __add__(self, other: Gradients) -> Gradients:
        """The mean of both, weighted by examples; the later statistics."""
        examples = self.examples + other.examples
        left, right = np.float32(self.examples / examples), np.float32(other.examples / examples)
        return Gradients(
            self.loss * float(left) + other.loss * float(right),
            {n: left * g + right * other.gradients[n] for n, g in self.gradients.items()},
            other.statistics,
            examples,
        )


@dataclass(frozen=True)
class StepResult:
    """The mean loss of the batch before the step, and the norm of its gradient before clipping."""

    loss: float
    gradient_norm: float


class StepGraphs:
    """Runs the parts of the gradient graph in order, each on what it reads of the tensors made so far; then the optimizer.

    `names` are those of the parts, `inputs` the inputs of the whole gradient graph as ONNX Runtime describes them. Nothing
    here changes a state: new tensors come of old ones.
    """

    def __init__(self, bundle: Bundle, threads: int, providers: Sequence[str], cut: bool):
        self.spec = spec = training_spec(bundle)
        parts = {m.name: m.file for m in spec.parts} if cut and spec.parts else {"gradient": spec.gradient}
        self.names = tuple(parts)
        self._parts = [training_session(bundle.path / file, threads, providers) for file in parts.values()]
        self._optimizer = training_session(bundle.path / spec.optimizer)
        self._reads = [[i.name for i in s.get_inputs()] for s in self._parts]
        self._optimizer_reads = [i.name for i in self._optimizer.get_inputs()]
        self._optimizer_makes = [o.name for o in self._optimizer.get_outputs()]
        made = [[o.name for o in s.get_outputs()] for s in self._parts]
        passed = {t for names in made for t in names}
        self.inputs = {i.name: i for s in self._parts for i in s.get_inputs() if i.name not in passed}
        kept = {spec.loss_output, *(p.gradient for p in spec.parameters), *(s.next for s in spec.statistics)}
        self._makes: list[list[str]] = []
        self._keeps: list[frozenset[str]] = []
        for k in reversed(range(len(made))):
            self._keeps.insert(0, frozenset(kept))
            self._makes.insert(0, [t for t in made[k] if t in kept])
            kept |= set(self._reads[k])

    def run(self, part: int, tensors: Mapping[str, np.ndarray]) -> Arrays:
        """Part `part`: what it made, and of `tensors` what is still needed after it."""
        made = self._parts[part].run(self._makes[part], {n: tensors[n] for n in self._reads[part]})
        kept = {n: a for n, a in tensors.items() if n in self._keeps[part]}
        return kept | dict(zip(self._makes[part], made, strict=True))

    def gradients(self, tensors: Mapping[str, np.ndarray], examples: int) -> Gradients:
        """What the last part left, sorted."""
        spec = self.spec
        return Gradients(
            loss=float(tensors[spec.loss_output].reshape(())),
            gradients={p.name: tensors[p.gradient] for p in spec.parameters},
            statistics={s.name: tensors[s.next] for s in spec.statistics},
            examples=examples,
        )

    def update(self, state: TrainingState, total: Gradients, lr: float) -> tuple[TrainingState, StepResult]:
        """The state after `state`. Raises StepRefused for a loss or gradient that is not finite."""
        step = state.step + 1
        if not np.isfinite(total.loss):
            raise StepRefused(f"step {step}: the loss is {total.loss}; lower --lr or look for broken examples")
        feeds = {p.gradient: total.gradients[p.name] for p in self.spec.parameters} | state.parameters | state.slots
        feeds |= {"lr": np.array(lr, np.float32), "step": np.array(step, np.float32)}
        results = self._optimizer.run(self._optimizer_makes, {n: feeds[n] for n in self._optimizer_reads})
        updated = dict(zip(self._optimizer_makes, results, strict=True))
        norm = float(updated["gradient_norm"])
        if not np.isfinite(norm):
            raise StepRefused(f"step {step}: the gradient is not finite; lower --lr or look for broken examples")
        after = TrainingState(
            parameters={n: updated[f"{n}/next"] for n in state.parameters},
            statistics=total.statistics or state.statistics,
            slots={n: updated[f"{n}/next"] for n in state.slots},
            step=step,
        )
        return after, StepResult(total.loss, norm)


def training_session(file: Path, threads: int = 1, providers: Sequence[str] = CPU) -> ort.InferenceSession:
    """A session on one training graph; its threads do not spin while others work."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(file), options, providers=list(providers))
