"""Who looks whether the world has changed: the inputs and the confidence of jobs that ended, per task (see training.drift)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgeengine.devices.providers.base import Tensors
from edgeengine.training.drift import Drift


@dataclass
class DriftWatch:
    """`call(task, what)` is told what has changed: "mean of x", "spread of x" or "confidence". Give it jobs in order of end."""

    call: Callable[[str, str], None]
    inputs: Mapping[str, tuple[str, ...]]  # by task, the model's inputs
    _drifts: dict[str, Drift] = field(default_factory=dict)

    def saw(self, task: str, tensors: Tensors, outputs: Tensors) -> None:
        """Of a finished job: what it had, and the model's outputs, of which the first is looked at."""
        given = {n: tensors[n] for n in self.inputs[task] if n in tensors}
        scores = next(iter(outputs.values()), None)
        if scores is None:
            return
        what = self._drifts.setdefault(task, Drift()).saw(given, scores)
        if what:
            self.call(task, what)
