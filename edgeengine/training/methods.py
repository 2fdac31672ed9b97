"""How a bundle learns from samples: by solving its head, or by gradient steps that mix new samples with rehearsed ones."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.spec.training import DER
from edgeengine.training.data import Examples
from edgeengine.training.graphs import StepResult
from edgeengine.training.ridge import RidgeHead, Sums
from edgeengine.training.samples import SampleStore
from edgeengine.training.schedule import learning_rate
from edgeengine.training.state import Arrays, restored, start_of, training_spec
from edgeengine.training.trainer import Trainer
from edgeengine.workload.learn import SOLVED


class Method(Protocol):
    """What a Learner trains with. A step is an iterator over micro-steps; only its last one changes anything.

    `waiting`: samples that no step has taken up yet. A method that takes them one after another knows in its own state how many
    it took since `fold`: it is given all that came since then again after a restart.
    """

    steps: int

    @property
    def waiting(self) -> bool: ...

    @property
    def takes_each(self) -> bool: ...

    @property
    def parts(self) -> int:
        """The micro-steps of a step, at most, before the one that changes something."""
        ...

    def fold(self) -> None:
        """Nothing that came so far will be given again."""
        ...

    def observe(self, examples: Examples, domain: str) -> None:
        """New samples, in the order in which they came, those held back left out."""
        ...

    def logits(self, inputs: Arrays, label: np.ndarray) -> np.ndarray | None:
        """What to store with new samples, float32 [n, classes], to be kept to when they are rehearsed; None for nothing."""
        ...

    def micro_steps(self, store: SampleStore) -> Iterator[StepResult | None]:
        """One step, a micro-step per item, the last of which is its result. Raises StepRefused; the state is as before then."""
        ...

    def version(self) -> Arrays: ...

    def tensors(self) -> Arrays: ...

    def restore(self, tensors: Mapping[str, np.ndarray]) -> None: ...

    def restart(self, version: Mapping[str, np.ndarray]) -> None:
        """Go on from the weights of a version, where weights are what it goes on from."""
        ...

    def forget(self, domain: str) -> None:
        """Let go what can be told apart of a domain whose samples are deleted."""
        ...


class ClosedForm:
    """The head by streaming ridge. Sums are kept by domain; `weights` say how much a sample of each counts, 1 where not given.

    A step solves nothing: it adds to the sums what came, at most `chunk` samples. `version` solves.
    """

    takes_each = True
    parts = 1

    def __init__(self, bundle: Bundle, *, ridge: float = 1e-3, weights: Mapping[str, float] | None = None, chunk: int = SOLVED):
        self.head, self._weights, self._chunk = RidgeHead(bundle, ridge=ridge), dict(weights or {}), chunk
        self._sums: dict[str, Sums] = {}
        self._waiting: deque[tuple[Examples, str]] = deque()
        self._taken = self._again = 0  # chunks since the last fold; those of them that will be given again
        self.steps = 0

    def observe(self, examples: Examples, domain: str) -> None:
        for at in range(0, len(examples), self._chunk):
            if self._again:
                self._again -= 1
                continue
            self._waiting.append((examples.pick(np.arange(at, min(at + self._chunk, len(examples)))), domain))

    def logits(self, inputs: Arrays, label: np.ndarray) -> None:
        """Sums are order-free: nothing is forgotten."""

    def fold(self) -> None:
        self._taken = self._again = 0

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    def micro_steps(self, store: SampleStore) -> Iterator[StepResult | None]:
        if not self._waiting:
            return
        examples, domain = self._waiting[0]
        sums = self.head.sums_of(examples.inputs, examples.label)
        yield None
        self._sums[domain] = self._sums[domain] + sums if domain in self._sums else sums
        self._waiting.popleft()
        self._taken += 1
        self.steps += 1
        yield StepResult(0.0, 0.0)

    def version(self) -> Arrays:
        total = Sums.zeros(self.head.spec.width, self.head.spec.classes)
        for domain in sorted(self._sums):
            total = total + self._sums[domain] * self._weights.get(domain, 1.0)
        return self.head.version(total)

    def tensors(self) -> Arrays:
        named: Arrays = {"steps": np.array(self.steps), "taken": np.array(self._taken)}
        for domain, sums in self._sums.items():
            named |= {f"gram:{domain}": sums.gram, f"cross:{domain}": sums.cross, f"weight:{domain}": sums.weight}
        return named

    def restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Raises UserError for a state of another bundle or method."""
        empty = Sums.zeros(self.head.spec.width, self.head.spec.classes)
        found = {}
        for name in (n for n in tensors if n.startswith("gram:")):
            domain = name.removeprefix("gram:")
            sums = Sums(*(np.array(tensors[f"{part}:{domain}"]) for part in ("gram", "cross", "weight")))
            if sums.gram.shape != empty.gram.shape or sums.cross.shape != empty.cross.shape:
                raise UserError(f"{self.head.bundle.path}: the sums kept there are of another head; start anew")
            found[domain] = sums
        if "steps" not in tensors:
            raise UserError(f"{self.head.bundle.path}: the state kept there is of another way to learn; start anew")
        self._sums, self.steps = found, int(tensors["steps"])
        self._taken = self._again = int(tensors["taken"])

    def restart(self, version: Mapping[str, np.ndarray]) -> None:
        """The sums stay: they are of samples, not of weights."""

    def forget(self, domain: str) -> None:
        self._sums.pop(domain, None)
        self._waiting = deque(w for w in self._waiting if w[1] != domain)


@dataclass(frozen=True)
class Rehearsal:
    """The settings of gradient steps: `new` samples of the `among` newest and `old` rehearsed ones each, in micro-batches.

    `lr`, the optimizer's usual rate where None, follows `schedule` over `steps` steps, or stays where `steps` is 0. `average`
    is the decay of a running mean of the weights, 0 for none; a version lies `blend` of the way from the bundle's weights to it.

    Batches of new and representative samples: Bouvier et al., "Efficient Data-Parallel Continual Learning with Asynchronous
    Distributed Rehearsal Buffers", 2024. Averages, and schedules that end with the budget: Shen et al., "On Efficient Training
    of Large-Scale Deep Learning Models", 2023. Weights between two ends: Wortsman et al., "Robust fine-tuning of zero-shot
    models", 2022.
    """

    new: int = 16
    old: int = 16
    among: int = 64
    micro_batch: int | None = None
    lr: float | None = None
    schedule: str = "constant"
    steps: int = 0
    warmup: int = 0
    average: float = 0.0
    blend: float = 1.0
    seed: int = 0


class GradientSteps:
    """Steps of the bundle's own training graphs, with rehearsal."""

    takes_each = waiting = False

    def __init__(self, bundle: Bundle, settings: Rehearsal | None = None, threads: int = 1):
        self.settings = settings or Rehearsal()
        self._cut = len(training_spec(bundle).parts)
        self.trainer = Trainer(bundle, threads=threads, cut=self._cut > 0)
        self.trainer.open()
        self._rng = np.random.default_rng(self.settings.seed)
        self._mean: Arrays = {}
        self.steps = 0

    @property
    def parts(self) -> int:
        chosen = self.settings
        batch = chosen.new + chosen.old
        runs = -(-batch // (self.trainer.fixed_batch or chosen.micro_batch or batch))
        return runs * max(self._cut, 1) + 1  # the optimizer

    def observe(self, examples: Examples, domain: str) -> None:
        """They are in the store: steps draw from there."""

    def logits(self, inputs: Arrays, label: np.ndarray) -> np.ndarray | None:
        """With the loss der those of the present weights; NaN where these are wrong: what is not known is not to be kept."""
        if self.trainer.spec.loss != DER:
            return None
        found = self.trainer.predictions(inputs)
        found[found.argmax(1) != label] = np.nan
        return found

    def fold(self) -> None:
        """Nothing is counted."""

    def micro_steps(self, store: SampleStore) -> Iterator[StepResult | None]:
        chosen = self.settings
        rng = np.random.default_rng()
        rng.bit_generator.state = self._rng.bit_generator.state  # a step that is given up has drawn nothing
        slots = np.concatenate([store.newest(chosen.new, chosen.among, rng), store.draw(chosen.old, rng)])
        if not len(slots):
            return
        batch = store.examples(slots)
        target = batch.label
        if self.trainer.spec.loss == DER:
            target = np.concatenate([batch.label[:, None], store.logits(slots)], 1).astype(np.float32)
        pending = self.trainer.begin(batch.inputs, target, self._rate(), chosen.micro_batch)
        for run in pending.micro_steps:
            run()
            yield None
        result = pending.commit()
        self._rng, self.steps = rng, self.steps + 1
        self._average()
        yield result

    def _rate(self) -> float:
        chosen = self.settings
        lr = self.trainer.spec.lr if chosen.lr is None else chosen.lr
        if not chosen.steps:
            return lr
        return learning_rate(chosen.schedule, lr, min(self.steps, chosen.steps - 1), chosen.steps, chosen.warmup)

    def _average(self) -> None:
        decay, now = np.float32(self.settings.average), self.trainer.state.parameters
        if decay:
            mean = self._mean or now
            self._mean = {n: decay * mean[n] + (1 - decay) * a for n, a in now.items()}

    def version(self) -> Arrays:
        state, blend = self.trainer.state, np.float32(self.settings.blend)
        parameters = self._mean or state.parameters
        if blend < 1:
            start = start_of(self.trainer.bundle).parameters
            parameters = {n: start[n] + blend * (a - start[n]) for n, a in parameters.items()}
        return self.trainer.version(replace(state, parameters=parameters))

    def tensors(self) -> Arrays:
        meta = {"steps": self.steps, "rng": self._rng.bit_generator.state}
        named = self.trainer.state.tensors() | {f"mean:{n}": a for n, a in self._mean.items()}
        return named | {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}

    def restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Raises UserError for a state of another bundle or method."""
        if "meta" not in tensors:
            raise UserError(f"{self.trainer.bundle.path}: the state kept there is of another way to learn; start anew")
        meta = json.loads(tensors["meta"].tobytes())
        own = {n: a for n, a in tensors.items() if n != "meta" and not n.startswith("mean:")}
        self.trainer.state = restored(self.trainer.bundle, own)
        self._mean = {n.removeprefix("mean:"): a for n, a in tensors.items() if n.startswith("mean:")}
        self.steps, self._rng.bit_generator.state = meta["steps"], meta["rng"]

    def restart(self, version: Mapping[str, np.ndarray]) -> None:
        """The version's weights, a fresh optimizer; adapters, which a version holds merged, start anew."""
        start = start_of(self.trainer.bundle)
        parameters = {n: np.array(version.get(n, a)) for n, a in start.parameters.items()}
        statistics = {n: np.array(version.get(n, a)) for n, a in start.statistics.items()}
        self.trainer.state = replace(start, parameters=parameters, statistics=statistics)
        self._mean = {}

    def forget(self, domain: str) -> None:
        """What weights have learned stays in them: only a new start from the bundle would take it out."""
