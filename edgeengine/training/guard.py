"""The guard: a version serves if it is no worse on samples that never trained, and is taken back if it proves worse later."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from edgeengine.spec.training import TrainingSpec
from edgeengine.training.data import Examples
from edgeengine.training.samples import SampleStore
from edgeengine.training.state import Arrays
from edgeengine.training.store import VersionRecord

CHUNK = 16  # samples per run: a guard's micro-step


@dataclass(frozen=True)
class Verdict:
    """`before` and `after` are the scores of the serving version and of the new one, by domain: accuracy, or minus the mean
    loss where the metric is no accuracy. `cause` says why the new one must not serve, "" if it may.
    """

    before: dict[str, float]
    after: dict[str, float]
    cause: str

    @property
    def passed(self) -> bool:
        return not self.cause


def hits(session: ort.InferenceSession, spec: TrainingSpec, output: str, examples: Examples) -> np.ndarray:
    """How right each answer is, float64 [n]: 1 or 0 with classes, minus the squared error otherwise; NaN where not finite."""
    feeds = {i.name: examples.inputs[i.name] for i in session.get_inputs()}
    scores = np.asarray(session.run([output], feeds)[0])
    flat = scores.reshape(len(scores), -1)
    if spec.metric == "accuracy" and spec.loss == "bce":
        right = ((scores > 0.5) == (examples.label > 0.5)).reshape(len(scores), -1).mean(1)
    elif spec.metric == "accuracy":
        right = (scores.argmax(1) == examples.label).reshape(len(scores), -1).mean(1)
    else:
        right = -((flat - examples.label.reshape(len(scores), -1)) ** 2).mean(1)
    return np.where(np.isfinite(flat).all(1), right, np.nan).astype(np.float64)


class Guard:
    """Compares two sessions on the samples that `store` holds back.

    A version is refused if on the samples of any domain it scores worse by more than `margin`, or gives outputs that are not
    finite. Accuracies come in whole samples: one more than the margin allows is taken for chance. With fewer than `least`
    held-back samples nothing can be said, and nothing is published.
    """

    def __init__(self, spec: TrainingSpec, output: str, margin: float = 0.02, least: int = 10):
        self.spec, self.output, self.margin, self.least = spec, output, margin, least

    def held(self, store: SampleStore) -> tuple[np.ndarray, Examples]:
        """What to compare on: domains, str [n], and samples. Copies: the store may change between micro-steps."""
        slots = store.held_back()
        return np.array([store.domain_of(int(s)) for s in slots]), store.examples(slots)

    def compare(
        self,
        on: tuple[np.ndarray, Examples],
        old: ort.InferenceSession,
        new: ort.InferenceSession,
        lost: Mapping[str, float] | None = None,
    ) -> Iterator[Verdict | None]:
        """Micro-steps of CHUNK samples; the last item is the verdict. `lost` is what `lost_since` says of the old one."""
        domains, held = on
        if len(held) < self.least:
            yield Verdict({}, {}, f"only {len(held)} samples held back, {self.least} are needed to compare versions")
            return
        found: dict[int, list[np.ndarray]] = {0: [], 1: []}
        for at in range(0, len(held), CHUNK):
            part = held.pick(np.arange(at, min(at + CHUNK, len(held))))
            for which, session in enumerate((old, new)):
                found[which].append(hits(session, self.spec, self.output, part))
            yield None
        before, after = (np.concatenate(found[which]) for which in (0, 1))
        yield self.verdict(domains, before, after, lost or {})

    def verdict(self, domains: np.ndarray, before: np.ndarray, after: np.ndarray, lost: Mapping[str, float]) -> Verdict:
        """From how right each answer was, by domain."""
        old = {str(d): float(np.nan_to_num(before[domains == d], nan=0.0).mean()) for d in np.unique(domains)}
        new = {str(d): float(after[domains == d].mean()) for d in old}
        cause = ""
        if not np.isfinite(after).all():
            cause = f"{int((~np.isfinite(after)).sum())} of {len(after)} answers are not finite"
        else:
            chance = {d: 1 / np.count_nonzero(domains == d) if self.spec.metric == "accuracy" else 0.0 for d in old}
            drop = {d: lost.get(d, 0.0) + old[d] - new[d] for d in old}
            worst = max(old, key=lambda d: drop[d] - chance[d])
            if drop[worst] > self.margin + chance[worst]:
                best = old[worst] + lost.get(worst, 0.0)
                cause = f"{worst or 'samples'}: {new[worst]:.4g} instead of {best:.4g}, margin {self.margin:g}"
        return Verdict(old, new, cause)


def lost_since(versions: Iterable[VersionRecord]) -> dict[str, float]:
    """By domain, how far the last of `versions` lies below the best of them and what served before, as the guard measured.

    The margin is of the best: many versions, each a little worse than the one before, would add up to any loss.
    """
    lost: dict[str, float] = {}
    for version in (v for v in versions if not v.cause):
        for domain, after in version.after.items():
            lost[domain] = max(lost.get(domain, 0.0) + version.before.get(domain, after) - after, 0.0)
    return lost


class Watchdog:
    """Looks at a version in service: over the last `window` labelled samples, each answered before it was learned from, is the
    version before it better by more than `margin`? Says so at the earliest after `least` samples.
    """

    def __init__(self, margin: float = 0.05, window: int = 60, least: int = 20):
        self.margin, self.least = margin, least
        self._lead: deque[float] = deque(maxlen=window)

    def saw(self, serving: np.ndarray, fallback: np.ndarray) -> str:
        """Note how right both were on new samples; why to go back, "" if all is well."""
        self._lead.extend((np.nan_to_num(fallback, nan=0.0) - np.nan_to_num(serving, nan=-1.0)).tolist())
        if len(self._lead) < self.least:
            return ""
        lead = sum(self._lead) / len(self._lead)
        return f"the version before is better by {lead:.4g} on the last {len(self._lead)} samples" if lead > self.margin else ""

    def reset(self) -> None:
        self._lead.clear()


def finite(version: Mapping[str, np.ndarray]) -> bool:
    return all(np.isfinite(a).all() for a in version.values())


def same(one: Arrays, other: Arrays) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(one[n].tobytes() == other[n].tobytes() for n in one)
