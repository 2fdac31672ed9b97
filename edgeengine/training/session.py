"""Fine-tuning on a bundle's state: it goes on from there, rehearses what is kept, and serves only if it is no worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.spec.training import DER
from edgeengine.training.claim import Claim
from edgeengine.training.data import Examples, split
from edgeengine.training.finetuning import FinetuneResult, finetune
from edgeengine.training.learner import sample_spec
from edgeengine.training.methods import GradientSteps
from edgeengine.training.samples import SampleStore
from edgeengine.training.state import training_spec
from edgeengine.training.store import VersionRecord, VersionStore

_OWED = "owed"  # steps that a learner on the device still has to make: none after a run


@dataclass(frozen=True)
class Session:
    """`kept_before` and `kept_after`: the metric on what earlier runs kept aside, None where nothing was. `record.cause` says
    why the version does not serve, "" where it does.
    """

    result: FinetuneResult
    kept_before: float | None
    kept_after: float | None
    record: VersionRecord


class Finetuning:
    """Of one bundle, with its state on `disk`. Examples are kept in `store_bytes`, 0 for none; `resume` goes on from the
    present version and optimizer state. Raises UserError for a bundle that is not trainable, and where another process learns.
    """

    def __init__(self, bundle: Bundle, disk: VersionStore, *, store_bytes: int = 0, resume: bool = False):
        if store_bytes and training_spec(bundle).loss == DER:
            raise UserError(f"{bundle.path}: with the loss der a learner keeps the samples (engine.learn); leave out --store-kb")
        self._claim = Claim(disk.folder)
        self._disk, self._method = disk, GradientSteps(bundle)
        self.trainer = self._method.trainer
        kept = disk.state()
        self._learned = kept[1] if kept is not None else 0
        if resume and kept is not None:
            self._method.restore({n: a for n, a in kept[0].items() if n != _OWED})
        self._samples = SampleStore(sample_spec(bundle, half=True), store_bytes) if store_bytes else None
        if self._samples is not None and disk.manifest.samples:
            self._samples.restore(disk.read(disk.manifest.samples))

    def run(self, examples: Examples, *, rehearse: int, margin: float, holdout: float, seed: int, **loop: Any) -> Session:
        """`finetune` with `rehearse` kept examples in each batch; `loop` are its other arguments. One commit, at the end.

        The version serves unless its metric is worse by more than `margin`, on the hold-out or on what was kept aside.
        """
        samples, trainer = self._samples, self.trainer
        if rehearse and samples is None:
            raise UserError(f"rehearse {rehearse}: rehearsing needs a store of some KB")
        if not margin >= 0:
            raise UserError(f"margin {margin:g}: must be 0 or more, as 0.02 for two hundredths of the metric")
        kept = samples.examples(samples.held_back()) if samples is not None and len(samples) else None
        scores = self._scores(kept)
        old = None if samples is None or not rehearse else lambda rng: samples.examples(samples.draw(rehearse, rng))
        result = finetune(trainer, examples, holdout=holdout, seed=seed, rehearse=old, **loop)
        scores += self._scores(kept)
        pairs = [(result.metric_before, result.metric_after), *([(scores[0], scores[1])] if scores else [])]
        sign = 1.0 if trainer.spec.metric == "accuracy" else -1.0  # of a loss, less is better
        worse = max(sign * (before - after) for before, after in pairs)
        if samples is not None:
            for part, aside in zip(split(examples, holdout, np.random.default_rng(seed)), (False, True), strict=True):
                samples.add(part.inputs, part.label, held_back=aside)
        record = self._commit("" if worse <= margin else f"worse by {worse:.4g}, margin {margin:g}")
        return Session(result, scores[0] if scores else None, scores[1] if scores else None, record)

    def _scores(self, kept: Examples | None) -> list[float]:
        """The metric on `kept`; nothing where there are none."""
        return [self.trainer.evaluate(kept.inputs, kept.label).metric] if kept is not None and len(kept) else []

    def _commit(self, cause: str) -> VersionRecord:
        disk, method = self._disk, self._method
        method.steps = self.trainer.state.step
        record = VersionRecord(disk.put(self.trainer.version()), method.steps, cause=cause)
        changes: dict[str, object] = {} if cause else {"serving": record.name, "fallback": disk.manifest.serving}
        if self._samples is not None:
            changes["samples"] = disk.put(self._samples.tensors(), "samples")
        changes |= disk.put_state(method.tensors() | {_OWED: np.array(0.0)}, self._learned)
        others = tuple(v for v in disk.manifest.versions if v.name != record.name)
        disk.commit(msgspec.structs.replace(disk.manifest, versions=(*others, record), **changes))
        return record
