"""Has the world changed? A change in the mean of a signal, told as it comes: of inputs, of confidence, of errors.

Page-Hinkley: the sum of how far each value lies beyond the running mean and a tolerance, less its least value so far; a change is
told when that exceeds a threshold. (Page, "Continuous Inspection Schemes", Biometrika 1954; Hinkley, "Inference about the
change-point from cumulative sum tests", Biometrika 1971; as a drift detector: Gama et al., "A Survey on Concept Drift
Adaptation", ACM Computing Surveys 2014.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class PageHinkley:
    """Tells a change of the mean, up or down, in units of the signal's own deviation over its first `least` values.

    `delta` is a change that does not count, `threshold` what must have added up: a mean that moves by two deviations is told
    after about threshold / (2 - delta) values.
    """

    delta: float = 0.5
    threshold: float = 15.0
    least: int = 50
    count: int = 0
    _first: list[float] = field(default_factory=list)
    _mean: float = 0.0
    _deviation: float = 1.0
    _up: float = 0.0
    _down: float = 0.0

    def update(self, value: float) -> bool:
        """Take one value; whether the mean has changed. Then it begins anew. A value that is not finite is a change."""
        if not math.isfinite(value):
            self.reset()
            return True
        self.count += 1
        if self.count <= self.least:
            self._first.append(value)
            if self.count == self.least:
                self._mean, self._deviation = float(np.mean(self._first)), max(float(np.std(self._first)), 1e-9)
            return False
        away = (value - self._mean) / self._deviation
        self._up = max(self._up + away - self.delta, 0.0)
        self._down = max(self._down - away - self.delta, 0.0)
        if max(self._up, self._down) > self.threshold:
            self.reset()
            return True
        return False

    def reset(self) -> None:
        self.count, self._first, self._up, self._down = 0, [], 0.0, 0.0


class Drift:
    """Watches what a model is given and how sure it is: the mean and the spread of each input, and the largest probability."""

    def __init__(self, **settings: float):
        self._settings = settings
        self._signals: dict[str, PageHinkley] = {}

    def saw(self, inputs: dict[str, np.ndarray], scores: np.ndarray) -> str:
        """Note one job: its inputs, and the scores of its classes (logits or probabilities). What changed, "" if nothing."""
        values = {f"mean of {n}": float(np.mean(a)) for n, a in inputs.items() if a.dtype.kind == "f"}
        values |= {f"spread of {n}": float(np.std(a)) for n, a in inputs.items() if a.dtype.kind == "f"}
        values["confidence"] = confidence(scores)
        for name, value in values.items():
            signal = self._signals.setdefault(name, PageHinkley(**self._settings))  # type: ignore[arg-type]
            if signal.update(value):
                return name
        return ""


def confidence(scores: np.ndarray) -> float:
    """The largest probability: of a softmax over logits, or as it is where the scores are probabilities already."""
    flat = np.asarray(scores, np.float64).reshape(-1)
    if flat.size == 0 or not np.isfinite(flat).all():
        return math.nan
    if (flat >= 0).all() and abs(flat.sum() - 1) < 1e-3:
        return float(flat.max())
    weights = np.exp(flat - flat.max())
    return float(weights.max() / weights.sum())
