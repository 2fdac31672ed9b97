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
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

STEEPNESS_PER_MS = 15.0
MOST_ENERGY_MJ = 1500.0


@dataclass(frozen=True)
class Frame:
    """One released frame; `completion_ms` is None if it was not executed to its end."""

    model: str
    deadline_ms: float
    completion_ms: float | None
    energy_mj: float = 0.0


def xr_score(frames: Iterable[Frame], *, strict: bool) -> float:
    """0..100. A model without any frame does not count."""
    by_model: dict[str, list[Frame]] = defaultdict(list)
    for frame in frames:
        by_model[frame.model].append(frame)
    if not by_model:
        return 0.0
    return 100 * sum(_of_model(given, strict) for given in by_model.values()) / len(by_model)


def _of_model(frames: list[Frame], strict: bool) -> float:
    gained, executed = 0.0, 0
    for frame in frames:
        if frame.completion_ms is None:
            continue
        late_ms = frame.completion_ms - frame.deadline_ms
        if strict and late_ms > 0:
            continue
        executed += 1
        real_time = 1 / (1 + math.exp(min(STEEPNESS_PER_MS * late_ms, 700.0)))
        gained += real_time * (MOST_ENERGY_MJ - frame.energy_mj) / MOST_ENERGY_MJ
    return gained / len(frames) * executed / len(frames)
