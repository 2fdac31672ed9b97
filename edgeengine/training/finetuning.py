"""The plain loop: shuffled batches, a hold-out, a schedule, a version at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgeengine.errors import UserError
from edgeengine.training.data import Examples, batches, joined, split
from edgeengine.training.schedule import learning_rate
from edgeengine.training.trainer import Trainer


@dataclass(frozen=True)
class FinetuneResult:
    """Losses are of the first and the last batch; metrics of the hold-out, before and after."""

    steps: int
    loss_first: float
    loss_last: float
    metric_before: float
    metric_after: float


def finetune(
    trainer: Trainer,
    examples: Examples,
    *,
    steps: int = 200,
    batch: int = 16,
    micro_batch: int | None = None,
    lr: float = 1e-3,
    schedule: str = "cosine",
    warmup: int = 0,
    holdout: float = 0.2,
    seed: int = 0,
    rehearse: Callable[[np.random.Generator], Examples] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> FinetuneResult:
    """Train for `steps` steps of `batch` examples and evaluate on the share `holdout` kept aside.

    `rehearse` gives examples of old skills that join each batch.

    The same data, arguments and seed give the same version. Raises UserError for arguments and data that do not fit, and
    StepRefused where the loss is not finite.
    """
    if steps < 1 or batch < 1 or not lr > 0:
        raise UserError(f"steps {steps}, batch {batch}, lr {lr}: all must be above 0")
    if warmup < 0 or seed < 0:
        raise UserError(f"warmup {warmup}, seed {seed}: neither may be negative")
    rng = np.random.default_rng(seed)
    training, kept = split(examples, holdout, rng)
    if trainer.fixed_batch and (batch % trainer.fixed_batch or len(training) < batch):
        raise UserError(f"the model takes batches of {trainer.fixed_batch}: give a --batch that is a multiple of it")
    before = trainer.evaluate(kept.inputs, kept.label)
    losses = []
    stream = batches(training, batch, rng)
    for step in range(steps):
        part = next(stream)
        if rehearse is not None:
            part = joined(part, rehearse(rng))
        rate = learning_rate(schedule, lr, step, steps, warmup)
        result = trainer.step(part.inputs, part.label, rate, micro_batch)
        losses.append(result.loss)
        if progress is not None:
            progress(f"step {step + 1} of {steps}, loss {result.loss:.4g}", (step + 1) / steps)
    after = trainer.evaluate(kept.inputs, kept.label)
    return FinetuneResult(steps, losses[0], losses[-1], before.metric, after.metric)
