"""Learning rates over a run of known length: warm-up, then constant, linear or cosine decay to 0."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgeengine.errors import UserError

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}


def learning_rate(name: str, lr: float, step: int, steps: int, warmup: int = 0) -> float:
    """The rate of step `step` (0 is the first) of `steps`, the first `warmup` rising linearly to `lr`.

    Raises UserError for an unknown schedule.
    """
    return rate_at(name, lr, step, (step - warmup) / max(steps - warmup, 1), warmup)


def rate_at(name: str, lr: float, step: int, done: float, warmup: int = 0) -> float:
    """The same where the length is not counted in steps: `done` is the share of the budget that is spent (0 to 1).

    A schedule that ends with the budget, whatever it is counted in: Li, Yumer, Ramanan, "Budgeted Training", ICLR 2020.
    """
    if name not in SCHEDULES:
        raise UserError(f"no schedule {name!r}; there are {', '.join(SCHEDULES)}")
    return lr * (step + 1) / warmup if step < warmup else lr * SCHEDULES[name](done)
