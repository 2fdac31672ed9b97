"""How a training task learns, as the workload file says it."""

from __future__ import annotations

from typing import Literal

import msgspec

RUN, HELD = 10, 2  # of RUN samples of one class and domain in a row, the last HELD are held back to guard with
SOLVED = 16  # samples that a step of a solved head takes


class Learn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a training task learns: `method` "head" solves the last layer, "gradients" trains; see training.learner.Settings.

    `weights`: what a sample of a domain counts in a solved head. `new` and `old` samples a step, in micro-batches.
    `lr`: None is the optimizer's usual rate. `samples_hz`: how many labelled samples come a second, where simulated; without it
    simulated training never runs out of work.
    """

    method: Literal["head", "gradients"] = "head"
    store_kb: int = 1024
    margin: float = 0.02
    weights: dict[str, float] = {}
    new: int = 4
    old: int = 28
    micro_batch: int = 8
    lr: float | None = None
    steps_per_sample: float = 0.25
    samples_hz: float | None = None

    @property
    def steps_hz(self) -> float | None:
        """Training steps that the samples ask for, a second."""
        if self.samples_hz is None:
            return None
        each = 1 / SOLVED if self.method == "head" else self.steps_per_sample
        return self.samples_hz * (1 - HELD / RUN) * each
