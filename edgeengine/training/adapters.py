"""A head for each person or site: a pool of at most so many, in which two become one when it is full.

The trunk is everybody's; what differs is the last layer, a small set of tensors outside the graph. When a new head finds no room,
the one that transfers best to the new person's samples takes it in: both are distilled into one, that gives on the samples of
each the scores that each gave. Which transfers best is told without training, by LEEP. (Ermis, Zappella, Wistuba, Rawal,
Archambeau, "Memory Efficient Continual Learning with Transformers", NeurIPS 2022; Nguyen, Hassner, Seeger, Archambeau, "LEEP: A
New Measure to Evaluate Transferability of Learned Representations", ICML 2020.) The last layer is linear, so that distilling
is least squares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training.files import write_file
from edgeengine.training.ridge import RidgeHead, least_squares
from edgeengine.training.state import Arrays

FILE = "adapters.safetensors"
MOST_SAMPLES = 128  # of a head's people that are kept to distil with: features, not inputs
Samples = tuple[np.ndarray, np.ndarray]  # features float16 [n, width], label int64 [n]


@dataclass(frozen=True)
class Adapter:
    """A head, `weight` [width, classes] and `bias` [classes], float32, and samples of those whose head it is, by name."""

    weight: np.ndarray
    bias: np.ndarray
    samples: Mapping[str, Samples]

    def scores(self, features: np.ndarray) -> np.ndarray:
        """float32 [n, classes]."""
        found: np.ndarray = features.astype(np.float32) @ self.weight + self.bias
        return found

    def without(self, user: str) -> Adapter:
        return replace(self, samples={u: s for u, s in self.samples.items() if u != user})


class AdapterPool:
    """Heads of one bundle, at most `most`, kept in a file of `folder` that is replaced as a whole.

    Raises UserError for a bundle without a linear last layer, and for a file that is damaged or another bundle's.
    """

    def __init__(self, bundle: Bundle, folder: Path, most: int = 4):
        if most < 1:
            raise UserError(f"a pool of {most} adapters: give 1 or more")
        self._head, self._most = RidgeHead(bundle), most
        self._bundle, self._file = bundle.hash, folder / FILE
        self.adapters: list[Adapter] = self._read() if self._file.exists() else []

    @property
    def users(self) -> dict[str, int]:
        """Whose head is where in `adapters`."""
        return {user: i for i, adapter in enumerate(self.adapters) for user in adapter.samples}

    def version(self, user: str) -> Arrays:
        """The tensors of the user's head, as a version of the bundle; none for one who has none: the bundle itself."""
        place = self.users.get(user)
        return {} if place is None else self._head.as_version(self.adapters[place].weight, self.adapters[place].bias)

    def keep(
        self, user: str, version: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray], label: np.ndarray
    ) -> tuple[str, ...]:
        """Keep the head of `version` for `user`, and some of these labelled samples; who shares it afterwards.

        A user's own head is replaced, one that was shared is left to the others. Raises UserError for a user without a name,
        a version that holds more than a head, no samples, and where the disk is full.
        """
        if not user or not len(label):
            raise UserError("adapters: a head is kept under a name, with some samples of whom it is for")
        features = self._head.features(inputs).astype(np.float16)
        new = Adapter(*self._head.of_version(version), {user: _some((features, np.asarray(label, np.int64)), MOST_SAMPLES)})
        others = self._without(user)
        if len(others) < self._most:
            found = [*others, new]
        else:
            best = max(range(len(others)), key=lambda i: leep(others[i].scores(new.samples[user][0]), new.samples[user][1]))
            found = [self._distilled(a, new) if i == best else a for i, a in enumerate(others)]
        self._write(found)
        return tuple(self.adapters[self.users[user]].samples)

    def forget(self, user: str) -> None:
        """Take a user out, samples and all; a head that nobody else has goes. One that was distilled keeps what it learned."""
        self._write(self._without(user))

    def _without(self, user: str) -> list[Adapter]:
        return [left for left in (a.without(user) for a in self.adapters) if left.samples]

    def _distilled(self, old: Adapter, new: Adapter) -> Adapter:
        """One head that gives, on the samples of each, the scores that each gave."""
        known = [(a, f) for a in (old, new) for f, _ in a.samples.values()]
        features = np.concatenate([f for _, f in known]).astype(np.float64)
        scores = np.concatenate([a.scores(f) for a, f in known]).astype(np.float64)
        weight, bias = least_squares(features, scores, self._head.ridge)
        samples = {**old.samples, **new.samples}
        each = max(MOST_SAMPLES // len(samples), 1)
        return Adapter(weight.astype(np.float32), bias.astype(np.float32), {u: _some(s, each) for u, s in samples.items()})

    def _write(self, adapters: list[Adapter]) -> None:
        tensors: Arrays = {"bundle": np.frombuffer(self._bundle.encode(), np.uint8)}
        for i, a in enumerate(adapters):
            users = np.frombuffer(msgspec.json.encode(list(a.samples)), np.uint8)
            tensors |= {f"{i}:users": users, f"{i}:weight": a.weight, f"{i}:bias": a.bias}
            for n, (features, label) in enumerate(a.samples.values()):
                tensors |= {f"{i}:features:{n}": features, f"{i}:label:{n}": label}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._file, save({n: np.ascontiguousarray(t) for n, t in tensors.items()}))
        except OSError as e:
            raise UserError(f"{self._file}: cannot be written ({e}); free some space or give another --state") from e
        self.adapters = adapters

    def _read(self) -> list[Adapter]:
        try:
            tensors = load(self._file.read_bytes())
            if tensors["bundle"].tobytes().decode() != self._bundle:
                raise UserError(f"{self._file}: the adapters of another bundle; remove the file to start anew")
            found = []
            for i in range(sum(n.endswith(":users") for n in tensors)):
                users = msgspec.json.decode(tensors[f"{i}:users"].tobytes(), type=list[str])
                samples = {u: (tensors[f"{i}:features:{n}"], tensors[f"{i}:label:{n}"]) for n, u in enumerate(users)}
                found.append(Adapter(tensors[f"{i}:weight"], tensors[f"{i}:bias"], samples))
        except (OSError, SafetensorError, KeyError, UnicodeDecodeError, msgspec.DecodeError) as e:
            raise UserError(f"{self._file}: cannot be read ({e}); remove the file to start anew") from e
        return found


def _some(samples: Samples, most: int) -> Samples:
    drawn = np.random.default_rng(0).permutation(len(samples[1]))[:most]
    return samples[0][drawn], samples[1][drawn]


def leep(scores: np.ndarray, label: np.ndarray) -> float:
    """The mean log likelihood of `label` by what the classes of `scores` (float [n, classes]) go with, at most 0."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    theta = shifted / shifted.sum(1, keepdims=True)
    joint = np.stack([theta[label == y].sum(0) for y in range(theta.shape[1])]) / len(label)  # of label and class
    given = joint / np.maximum(joint.sum(0), 1e-12)
    return float(np.mean(np.log(np.maximum((theta @ given.T)[np.arange(len(label)), label], 1e-12))))
