"""XRBench's score of a run (Kwon et al., XRBench, MLSys 2023; formula as coded in HET_scoring-module.hpp).

    rt  = 1 / (1 + exp(15 (completion - deadline)))        times in ms
    en  = (1500 - E) / 1500                                 E in mJ
    qoe = 1 - dropped / total
    score = 100 * mean over models of [sum over executed frames of rt * en / total] * qoe

As coded, a frame that is executed late is no drop, however late. `strict` closes that: what is not done by its deadline adds
nothing and counts as dropped. Drops weigh twice in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

STEEPNESS_PER_MS = 15.0
MOST_ENERGY_MJ = 1500.0


@dataclass(frozen=True)
class Frame:
    """One released frame; `completion_ms` is None if it was not executed to its end."""

    model: str
    deadline_ms: float
    completion_ms: float | None
    energy_mj: float = 0.0


@dataclass
class _Model:
    frames: int = 0
    executed: int = 0
    gained: float = 0.0


@dataclass
class XrScore:
    """Frames come one by one; none is kept."""

    strict: bool
    _models: dict[str, _Model] = field(default_factory=dict)

    def add(self, frame: Frame) -> None:
        model = self._models.setdefault(frame.model, _Model())
        model.frames += 1
        if frame.completion_ms is None:
            return
        late_ms = frame.completion_ms - frame.deadline_ms
        if self.strict and late_ms > 0:
            return
        model.executed += 1
        real_time = 1 / (1 + math.exp(min(STEEPNESS_PER_MS * late_ms, 700.0)))
        model.gained += real_time * (MOST_ENERGY_MJ - frame.energy_mj) / MOST_ENERGY_MJ

    @property
    def value(self) -> float:
        """0..100. A model without any frame does not count."""
        scores = [m.gained / m.frames * m.executed / m.frames for m in self._models.values()]
        return 100 * sum(scores) / len(scores) if scores else 0.0


def xr_score(frames: Iterable[Frame], *, strict: bool) -> float:
    """0..100, of all frames of a run."""
    score = XrScore(strict)
    for frame in frames:
        score.add(frame)
    return score.value
