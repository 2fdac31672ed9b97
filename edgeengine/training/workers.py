"""Training on several processors at once: each computes gradients at its own pace, on the weights that it last saw.

Weights have a version, one more with every update. A gradient computed at an older one is stale by the difference: its rate is
divided by that, and past a limit it is dropped (Zhang, Gupta, Lian, Liu, "Staleness-aware Async-SGD for Distributed Deep
Learning", IJCAI 2016). Every worker gets the batch that it finishes within the deadline, so that all finish together (the batch
rule of Ren, Yu, Ding, "Accelerating DNN Training in Wireless Federated Edge Learning Systems", 2021; unequal processors: Ma,
Rusu, "Heterogeneous CPU+GPU Stochastic Gradient Descent Algorithms", 2020). Asynchrony may cost accuracy, so a hold-out is
measured by and by: where it falls, or a step is refused, the best weights come back and one worker goes on alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgeengine.errors import UserError
from edgeengine.training.data import Examples, split
from edgeengine.training.graphs import Gradients, StepRefused
from edgeengine.training.schedule import learning_rate
from edgeengine.training.state import TrainingState
from edgeengine.training.trainer import Trainer

PROBE = (2, 16)  # examples of the two batches that a worker's pace is measured with
PROBES = 3  # runs of each; the fastest counts


@dataclass(frozen=True)
class Pace:
    """A gradient of n examples takes `start_s` + n `each_s`."""

    start_s: float
    each_s: float

    def batch(self, deadline_s: float, most: int, multiple: int = 1) -> int:
        """The largest batch done by the deadline, at least `multiple`, a multiple of it, and at most `most`."""
        fits = int(max(deadline_s - self.start_s, 0.0) / self.each_s)
        return max(min(fits, most) // multiple, 1) * multiple


@dataclass
class Published:
    """The weights that all share, and what became of the gradients that came in. One thread at a time."""

    trainer: Trainer
    most_stale: int
    version: int = 0
    dropped: int = 0
    staleness: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def take(self, gradients: Gradients, version: int, lr: float) -> bool:
        """Make the update of a gradient computed at `version`; False where it was too stale. Raises StepRefused."""
        stale = self.version - version
        if stale > self.most_stale:
            self.dropped += 1
            return False
        result = self.trainer.apply(gradients, lr / max(stale, 1))
        self.version += 1
        self.staleness.append(stale)
        self.losses.append(result.loss)
        return True


@dataclass(frozen=True)
class WorkersResult:
    """`updates` made, gradients `dropped` as too stale, the mean `staleness`, `batches` by worker; metrics of the hold-out.
    `alone_after`: the updates after which one worker went on alone because the hold-out fell; None where it did not.
    """

    updates: int
    dropped: int
    staleness: float
    batches: tuple[int, ...]
    metric_before: float
    metric_after: float
    alone_after: int | None


def finetune_beside(
    trainers: Sequence[Trainer],
    examples: Examples,
    *,
    steps: int = 200,
    deadline_s: float = 0.05,
    most_batch: int = 64,
    most_stale: int = 4,
    lr: float | None = None,
    schedule: str = "cosine",
    holdout: float = 0.2,
    margin: float = 0.02,
    check_every: int = 50,
    seed: int = 0,
) -> WorkersResult:
    """Train the first trainer's weights by `steps` updates, gradients computed by all of them, each on a thread of its own.

    The trainers are of one bundle, with processors of their own (`Trainer(bundle, on=…)`). Which gradients meet in which order is
    up to the machine: two runs differ. Raises UserError for no trainers or those of different bundles, and for what does not
    fit; StepRefused where the loss is not finite.
    """
    if not trainers or any(t.bundle.hash != trainers[0].bundle.hash for t in trainers):
        raise UserError("workers: give one trainer or more, all of the same bundle")
    lr = trainers[0].spec.lr if lr is None else lr
    if steps < 1 or check_every < 1 or most_stale < 0 or not deadline_s > 0 or not lr > 0:
        raise UserError("workers: steps, check_every, deadline_s and lr must be above 0, most_stale not negative")
    rng = np.random.default_rng(seed)
    training, kept = split(examples, holdout, rng)
    main = trainers[0]
    sign = 1.0 if main.spec.metric == "accuracy" else -1.0  # of a loss, less is better
    most = min(most_batch, len(training))
    batches = tuple(pace_of(t, training).batch(deadline_s, most, t.fixed_batch or 1) for t in trainers)
    shared = Published(main, most_stale)
    before = best = main.evaluate(kept.inputs, kept.label).metric
    best_state, alone_after = main.state, None
    while shared.version < steps:
        crew = trainers if alone_after is None else trainers[:1]
        until = min(shared.version + check_every, steps)
        try:
            _update(crew, batches, shared, training, until, lambda v: learning_rate(schedule, lr, v, steps), rng)
            metric = main.evaluate(kept.inputs, kept.label).metric
        except StepRefused:
            if len(crew) == 1:
                raise
            metric = -sign * np.inf
        if sign * (best - metric) > margin and len(crew) > 1:
            main.state, alone_after = best_state, shared.version
        elif sign * (metric - best) >= 0:
            best, best_state = metric, main.state
    after = main.evaluate(kept.inputs, kept.label).metric
    stale = float(np.mean(shared.staleness))
    return WorkersResult(shared.version, shared.dropped, stale, batches, before, after, alone_after)


def pace_of(trainer: Trainer, examples: Examples) -> Pace:
    """Measured by two sizes of batch; changes nothing."""
    multiple = trainer.fixed_batch or 1
    sizes = [max(n // multiple, i + 1) * multiple for i, n in enumerate(PROBE)]
    taken = []
    for size in sizes:
        part = examples.pick(np.arange(size) % len(examples))
        taken.append(min(_seconds(lambda p=part: _gradients(trainer, p)) for _ in range(PROBES)))  # type: ignore[misc]
    each_s = max((taken[1] - taken[0]) / (sizes[1] - sizes[0]), 1e-9)
    return Pace(max(taken[0] - sizes[0] * each_s, 0.0), each_s)


def _seconds(code: Callable[[], object]) -> float:
    begun = time.perf_counter()
    code()
    return time.perf_counter() - begun


def _gradients(trainer: Trainer, part: Examples, state: TrainingState | None = None) -> Gradients:
    """Of a batch, which a fixed batch size divides, at `state`: the mean over its micro-batches."""
    size = trainer.fixed_batch or len(part)
    found: Gradients | None = None
    for at in range(0, len(part), size):
        piece = part.pick(np.arange(at, at + size))
        one = trainer.gradients(piece.inputs, piece.label, state)
        found = one if found is None else found + one
    assert found is not None
    return found


def _update(
    crew: Sequence[Trainer], batches: Sequence[int], shared: Published, training: Examples, until: int,
    rate: Callable[[int], float], rng: np.random.Generator,
) -> None:  # fmt: skip
    """All of the crew at once, until there are so many updates."""
    lock, failures = threading.Lock(), list[BaseException]()

    def work(worker: int) -> None:
        try:
            while True:
                with lock:
                    if failures or shared.version >= until:
                        return
                    part = training.pick(rng.choice(len(training), batches[worker], replace=batches[worker] > len(training)))
                    state, version = shared.trainer.state, shared.version
                gradients = _gradients(crew[worker], part, state)
                with lock:
                    if shared.version < until:
                        shared.take(gradients, version, rate(version))
        except BaseException as e:  # noqa: BLE001  raised again by the caller
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,), name=f"edgeengine worker {i}") for i in range(len(crew))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
