"""The plain loop: shuffled batches, a hold-out, a schedule, a version at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from edgeengine.errors import UserError
from edgeengine.training.data import Examples, batches, joined, split
from edgeengine.training.schedule import learning_rate, rate_at
from edgeengine.training.trainer import Trainer


@dataclass(frozen=True)
class FinetuneResult:
    """Losses are of the first and the last batch; metrics of the hold-out, before and after. `seconds` of training alone."""

    steps: int
    loss_first: float
    loss_last: float
    metric_before: float
    metric_after: float
    seconds: float = field(default=0.0, compare=False)


def finetune(
    trainer: Trainer,
    examples: Examples,
    *,
    steps: int = 200,
    seconds: float | None = None,
    batch: int = 16,
    micro_batch: int | None = None,
    lr: float | None = None,
    schedule: str = "cosine",
    warmup: int = 0,
    holdout: float = 0.2,
    seed: int = 0,
    rehearse: Callable[[np.random.Generator], Examples] | None = None,
    progress: Callable[[str, float], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> FinetuneResult:
    """Train for `steps` steps of `batch` examples and evaluate on the share `holdout` kept aside.

    `rehearse` gives examples of old skills that join each batch. `lr` None is the optimizer's usual rate. With `seconds`
    steps are made for so long instead, and the schedule ends there; a step that would probably end later is not begun, but for
    the first.

    The same data, arguments and seed give the same version, unless time decides. Raises UserError for arguments and data that
    do not fit, and StepRefused where the loss is not finite.
    """
    lr = trainer.spec.lr if lr is None else lr
    if steps < 1 or batch < 1 or not lr > 0:
        raise UserError(f"steps {steps}, batch {batch}, lr {lr}: all must be above 0")
    if seconds is not None and not 0 < seconds < 1e9:
        raise UserError(f"{seconds} seconds: must be above 0")
    if warmup < 0 or seed < 0:
        raise UserError(f"warmup {warmup}, seed {seed}: neither may be negative")
    rng = np.random.default_rng(seed)
    training, kept = split(examples, holdout, rng)
    if trainer.fixed_batch and (batch % trainer.fixed_batch or len(training) < batch):
        raise UserError(f"the model takes batches of {trainer.fixed_batch}: give a --batch that is a multiple of it")
    before = trainer.evaluate(kept.inputs, kept.label)
    losses: list[float] = []
    stream, begun = batches(training, batch, rng), clock()
    while (done := _share_done(len(losses), steps, clock() - begun, seconds)) < 1:
        part = next(stream)
        if rehearse is not None:
            part = joined(part, rehearse(rng))
        step = len(losses)
        rate = learning_rate(schedule, lr, step, steps, warmup) if seconds is None else rate_at(schedule, lr, step, done, warmup)
        losses.append(trainer.step(part.inputs, part.label, rate, micro_batch).loss)
        if progress is not None:
            share, of = ((step + 1) / steps, f" of {steps}") if seconds is None else (done, "")
            progress(f"step {step + 1}{of}, loss {losses[-1]:.4g}", share)
    took_s = clock() - begun
    after = trainer.evaluate(kept.inputs, kept.label)
    return FinetuneResult(len(losses), losses[0], losses[-1], before.metric, after.metric, took_s)


def _share_done(made: int, steps: int, passed_s: float, seconds: float | None) -> float:
    """Of the budget; 1 where another step, as long as those made, would not fit any more."""
    if seconds is None:
        return made / steps
    another_s = passed_s / made if made else 0.0
    return passed_s / seconds if passed_s + another_s <= seconds else float(made > 0)
