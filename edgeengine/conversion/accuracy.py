"""A changed model against the float one, on samples: what it costs, and whether that is too much."""

from __future__ import annotations

import msgspec
import numpy as np

from edgeengine.conversion.compare import Difference, difference, worst_rms
from edgeengine.conversion.samples import Samples
from edgeengine.errors import UserError
from edgeengine.graph.session import RUNTIME_ERRORS, create, first_line


class Accuracy(msgspec.Struct, frozen=True):
    """`drop`, in per cent, is what is held against the limit.

    With labels it is the accuracy lost, in percentage points (`criterion` "accuracy"; never below 0): the class is the
    largest element of the first output's last axis. Without, it is the root mean square of the difference as a share of the
    output's range over all samples, of the output where that is largest ("error"). `outputs` holds every output's.
    """

    drop: float
    criterion: str
    samples: int
    outputs: list[Difference]
    float_accuracy: float | None = None
    accuracy: float | None = None


class Reference:
    """The float model's results on samples, computed once. Raises UserError where it does not run on them."""

    def __init__(self, model: str, samples: Samples, where: str) -> None:
        self._samples, self._where = samples, where
        self.names, self._results = self._run(model)

    def compare(self, model: str) -> Accuracy:
        """The .onnx file `model` on the same samples. Raises UserError where it does not run."""
        _, results = self._run(model)
        found = [difference(n, r, o) for n, r, o in zip(self.names, self._results, results, strict=True)]
        labels = self._samples.labels
        if labels is None:
            return Accuracy(100 * worst_rms(found).rms, "error", len(self._samples), found)
        before, after = self._accuracy(self._results[0], labels), self._accuracy(results[0], labels)
        return Accuracy(max(before - after, 0.0), "accuracy", len(labels), found, before, after)

    def _run(self, model: str) -> tuple[list[str], list[np.ndarray]]:
        try:
            session = create(model, optimized=True)
            names = [o.name for o in session.get_outputs()]
            runs = [session.run(names, feeds) for feeds in self._samples]
        except RUNTIME_ERRORS as e:
            raise UserError(f"{self._where}: does not run on the samples ({first_line(e)}); give samples as it wants them") from e
        return names, [np.stack(outputs) for outputs in zip(*runs, strict=True)]

    def _accuracy(self, output: np.ndarray, labels: np.ndarray) -> float:
        """Per cent of `labels` that are the largest element of `output` [runs, rows, classes]."""
        classes = output.argmax(axis=-1).reshape(-1)
        if len(classes) != len(labels):
            raise UserError(
                f"{self._where}: output {self.names[0]!r} gives {len(classes)} classes for {len(labels)} labels; "
                f"leave 'label' out to compare outputs instead"
            )
        return 100.0 * float(np.mean(classes == labels))
