"""The sample store: labelled samples in a fixed number of bytes, to rehearse old skills with and to guard new versions.

Part of the samples is held back: it never trains, and a new version is measured on it. Everything is decided by the samples
and the seed, in the order in which they came, so that a store read back goes on as the one that was written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from edgeengine.errors import UserError
from edgeengine.training.data import Examples
from edgeengine.training.reservoir import Group, Reservoir
from edgeengine.training.state import Arrays
from edgeengine.workload.learn import HELD, RUN

MOST_BYTES = 4 << 30  # the store lies in memory and is written whole
_FIXED = 8 + 8 + 8  # bytes of a slot's label, number and weight


@dataclass(frozen=True)
class SampleSpec:
    """The shapes of one sample, without a batch axis. `classes` is 0 where labels are no classes.

    `half` stores floats in 16 bits: twice as many in the same bytes. `logits` is their number per sample, 0 to store none
    (dark experience replay: Buzzega et al., "Dark Experience for General Continual Learning", NeurIPS 2020).
    """

    inputs: dict[str, tuple[tuple[int, ...], str]]
    label_shape: tuple[int, ...] = ()
    label_dtype: str = "int64"
    classes: int = 0
    logits: int = 0
    half: bool = False

    def stored(self, dtype: str) -> np.dtype:
        return np.dtype(np.float16) if self.half and np.dtype(dtype).kind == "f" else np.dtype(dtype)

    @property
    def bytes(self) -> int:
        """Of one sample in the store."""
        inputs = sum(math.prod(shape) * self.stored(dtype).itemsize for shape, dtype in self.inputs.values())
        return inputs + math.prod(self.label_shape) * np.dtype(self.label_dtype).itemsize + self.logits * 4 + _FIXED


@dataclass(frozen=True)
class Added:
    """`numbers` of the samples, by which they can be deleted; `held_back`, bool per sample: never to be trained on."""

    numbers: range
    held_back: np.ndarray


class SampleStore:
    """At most `budget_bytes` of samples of one `spec`.

    Raises UserError where the budget holds fewer than RUN samples, or is above MOST_BYTES.
    """

    def __init__(self, spec: SampleSpec, budget_bytes: int, seed: int = 0):
        if budget_bytes > MOST_BYTES:
            raise UserError(f"a sample store of {budget_bytes} bytes: at most {MOST_BYTES} are kept; give less")
        capacity = budget_bytes // spec.bytes
        if capacity < RUN:
            raise UserError(
                f"a sample store of {budget_bytes} bytes holds {capacity} samples of {spec.bytes}; give {RUN} or more"
            )
        self.spec, self.capacity = spec, capacity
        held = capacity * HELD // RUN
        self._first_held = capacity - held
        self._parts = (Reservoir(capacity - held), Reservoir(held))  # for training, held back
        self._came: dict[Group, int] = {}
        self._next = 0
        self._rng = np.random.default_rng(seed)
        self._arrays: Arrays = {f"input:{n}": np.zeros((capacity, *s), spec.stored(d)) for n, (s, d) in spec.inputs.items()}
        self._arrays["label"] = np.zeros((capacity, *spec.label_shape), spec.label_dtype)
        self._arrays["number"] = np.full(capacity, -1, np.int64)
        self._arrays["weight"] = np.ones(capacity, np.float64)
        if spec.logits:
            self._arrays["logits"] = np.zeros((capacity, spec.logits), np.float32)

    def __len__(self) -> int:
        return int((self._arrays["number"] >= 0).sum())

    @property
    def came(self) -> int:
        """Samples offered so far, kept or not."""
        return self._next

    @property
    def counts(self) -> dict[Group, int]:
        """Samples kept, by class and domain."""
        total: dict[Group, int] = {}
        for part in self._parts:
            for group, size in part.sizes.items():
                if size:
                    total[group] = total.get(group, 0) + size
        return total

    def add(
        self,
        inputs: Mapping[str, np.ndarray],
        label: np.ndarray,
        *,
        domain: str = "",
        logits: np.ndarray | None = None,
        weight: float = 1.0,
        held_back: bool | None = None,
    ) -> Added:
        """Offer a batch, the samples along the first axis.

        `domain` says where they come from (a user, a site, the laptop). `held_back` None holds back HELD of RUN in a row.
        Raises UserError for what does not fit, and for values that are not finite; then nothing is added.
        """
        self.check(inputs, label, logits)
        first, aside = self._next, np.zeros(len(label), bool)
        for i in range(len(label)):
            group = (int(label[i]) if self.spec.classes else 0, domain)
            turn = self._came.get(group, 0)
            self._came[group] = turn + 1
            aside[i] = turn % RUN >= RUN - HELD if held_back is None else held_back
            slot = self._parts[int(aside[i])].place(group, self._rng)
            if slot is not None:
                at = slot + self._first_held * int(aside[i])
                for name in self.spec.inputs:
                    self._arrays[f"input:{name}"][at] = inputs[name][i]
                self._arrays["label"][at], self._arrays["weight"][at] = label[i], weight
                self._arrays["number"][at] = self._next
                if self.spec.logits:
                    self._arrays["logits"][at] = np.nan if logits is None else logits[i]
            self._next += 1
        return Added(range(first, self._next), aside)

    def check(self, inputs: Mapping[str, np.ndarray], label: np.ndarray, logits: np.ndarray | None = None) -> None:
        """Raises UserError where a batch does not fit the store."""
        spec, count = self.spec, len(label)
        wanted = {n: s for n, (s, _) in spec.inputs.items()}
        if inputs.keys() != wanted.keys():
            raise UserError(f"a sample has inputs {', '.join(wanted)}, these have {', '.join(inputs)}")
        for name, shape in wanted.items():
            if inputs[name].shape != (count, *shape):
                raise UserError(f"input {name!r} has shape {inputs[name].shape}, {count} samples of {shape} were wanted")
            self._check_values(f"input {name!r}", inputs[name], spec.stored(spec.inputs[name][1]))
        if label.shape != (count, *spec.label_shape):
            raise UserError(f"labels have shape {label.shape}, {(count, *spec.label_shape)} was wanted")
        self._check_values("the label", label, np.dtype(spec.label_dtype))
        if spec.classes and not (label.dtype.kind in "iu" and ((label >= 0) & (label < spec.classes)).all()):
            raise UserError(
                f"labels must be classes 0 to {spec.classes - 1}; there are {sorted({*label.reshape(-1).tolist()})[:4]}"
            )
        if logits is not None and logits.shape != (count, spec.logits):
            raise UserError(f"logits have shape {logits.shape}, the store keeps {(count, spec.logits)}")

    @staticmethod
    def _check_values(what: str, values: np.ndarray, stored: np.dtype) -> None:
        """One sample that is not finite where it is stored would make every step and every guard refuse."""
        if values.dtype.kind != "f":
            return
        if not np.isfinite(values).all():
            raise UserError(f"{what} holds values that are not finite; nothing is learned from it")
        if stored.kind == "f" and values.size and np.abs(values).max() > np.finfo(stored).max:
            most = np.finfo(stored).max
            raise UserError(f"{what} holds values beyond {most:g}, the most that the store's {stored} keeps; scale it")

    def delete(self, numbers: Iterable[int]) -> int:
        """Delete these samples, their bytes overwritten; how many of them were still here."""
        return self._clear(np.isin(self._arrays["number"], np.array(list(numbers), np.int64)))

    def delete_domain(self, domain: str) -> int:
        """Delete all samples of one user or site; how many there were."""
        groups = [*self._parts[0].groups, *self._parts[1].groups]
        return self._clear(np.array([g is not None and g[1] == domain for g in groups]))

    def _clear(self, chosen: np.ndarray) -> int:
        found = np.flatnonzero(chosen & (self._arrays["number"] >= 0))
        for at in found.tolist():
            aside = at >= self._first_held
            self._parts[aside].free(at - self._first_held * aside)
        for array in self._arrays.values():
            array[found] = 0
        self._arrays["number"][found] = -1
        return len(found)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Slots of at most `count` samples to train on, each at most once, drawn evenly."""
        filled = np.array(self._parts[0].filled, np.int64)
        return filled if len(filled) <= count else rng.choice(filled, count, replace=False)

    def newest(self, count: int, among: int, rng: np.random.Generator) -> np.ndarray:
        """Slots of at most `count` samples to train on, drawn from the `among` newest."""
        filled = np.array(self._parts[0].filled, np.int64)
        newest = np.sort(filled[np.argsort(self._arrays["number"][filled])[-among:]])
        return newest if len(newest) <= count else rng.choice(newest, count, replace=False)

    def held_back(self, domains: Iterable[str] | None = None) -> np.ndarray:
        """Slots of the samples that never train, of some domains or all."""
        wanted = None if domains is None else set(domains)
        groups = self._parts[1].groups
        found = [i for i, g in enumerate(groups) if g is not None and (wanted is None or g[1] in wanted)]
        return np.array(found, np.int64) + self._first_held

    def domain_of(self, slot: int) -> str:
        aside = slot >= self._first_held
        group = self._parts[aside].groups[slot - self._first_held * aside]
        return group[1] if group is not None else ""

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(sorted({g[1] for g in self.counts}))

    def examples(self, slots: np.ndarray) -> Examples:
        """The samples in these slots, floats as 32 bits."""
        spec = self.spec
        inputs = {n: self._arrays[f"input:{n}"][slots].astype(d, copy=False) for n, (_, d) in spec.inputs.items()}
        return Examples(inputs, self._arrays["label"][slots])

    def logits(self, slots: np.ndarray) -> np.ndarray:
        """Stored logits, float32 [count, logits]; NaN where a sample came without."""
        found: np.ndarray = self._arrays["logits"][slots]
        return found

    def tensors(self) -> Arrays:
        """All of it for a file: the arrays, and `meta`, JSON as bytes."""
        for part in self._parts:
            part.canonical()
        meta = {
            "capacity": self.capacity,
            "next": self._next,
            "rng": self._rng.bit_generator.state,
            "came": [[*g, n] for g, n in sorted(self._came.items())],
            "parts": [{"groups": p.groups, "seen": [[*g, n] for g, n in sorted(p.seen.items())]} for p in self._parts],
        }
        return {**self._arrays, "meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}

    def restore(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Take over what `tensors` gave. Raises UserError where it is of other samples or another budget."""
        expected = {n: (a.shape, a.dtype) for n, a in self._arrays.items()}
        if {n: (a.shape, a.dtype) for n, a in tensors.items() if n != "meta"} != expected:
            raise UserError("the sample store kept there is of other samples or another budget; use that budget, or start anew")
        meta = json.loads(tensors["meta"].tobytes())
        self._arrays = {n: np.array(tensors[n]) for n in self._arrays}
        self._next, self._came = meta["next"], {(int(c), d): n for c, d, n in meta["came"]}
        self._rng.bit_generator.state = meta["rng"]
        for part, kept in zip(self._parts, meta["parts"], strict=True):
            groups = [None if g is None else (int(g[0]), g[1]) for g in kept["groups"]]
            part.restore(groups, {(int(c), d): n for c, d, n in kept["seen"]})
