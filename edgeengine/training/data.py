"""Labelled examples from a .npz file: one array per model input, and `label`, the first axis over examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from edgeengine.errors import UserError


@dataclass(frozen=True)
class Examples:
    """`inputs` and `label` of the same length."""

    inputs: dict[str, np.ndarray]
    label: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

    def pick(self, index: np.ndarray) -> Examples:
        return Examples({n: a[index] for n, a in self.inputs.items()}, self.label[index])


def load_examples(file: str | Path, inputs: Sequence[str], label: str, dtype: str) -> Examples:
    """Read `file`; labels become `dtype`, floats float32. Raises UserError for arrays that are missing or do not fit."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {n: archive[n] for n in archive.files}
    except (OSError, ValueError, EOFError, BadZipFile) as e:
        raise UserError(f"{file}: cannot be read as .npz without pickles ({e})") from e
    missing = [n for n in (*inputs, label) if n not in arrays]
    if missing:
        raise UserError(
            f"{file}: has no array {missing[0]!r}; give one per model input and {label!r} (found: {', '.join(arrays)})"
        )
    lengths = {n: len(arrays[n]) if arrays[n].ndim else 0 for n in (*inputs, label)}
    if len(set(lengths.values())) > 1 or not lengths[label]:
        raise UserError(f"{file}: arrays of different or no length ({lengths}); the first axis is the examples'")
    return Examples({n: _plain(arrays[n]) for n in inputs}, _labels(arrays[label], dtype, file))


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _labels(array: np.ndarray, dtype: str, file: object) -> np.ndarray:
    wanted = array.astype(dtype)
    if np.dtype(dtype).kind == "i" and not np.array_equal(wanted, array):
        raise UserError(f"{file}: labels are {array.dtype} and no whole numbers; this loss wants classes")
    return wanted


def split(examples: Examples, holdout: float, rng: np.random.Generator) -> tuple[Examples, Examples]:
    """(training, hold-out), drawn at random; `holdout` is the latter's share. Raises UserError where one would be empty."""
    if not 0 < holdout < 1:
        raise UserError(f"a hold-out of {holdout}: give a share between 0 and 1")
    order = rng.permutation(len(examples))
    count = round(len(examples) * holdout)
    if not 0 < count < len(examples):
        raise UserError(f"{len(examples)} examples cannot be split with a hold-out of {holdout}; give more")
    return examples.pick(order[count:]), examples.pick(order[:count])


def joined(one: Examples, other: Examples) -> Examples:
    """The examples of both, one after the other."""
    inputs = {n: np.concatenate([a, other.inputs[n]]) for n, a in one.inputs.items()}
    return Examples(inputs, np.concatenate([one.label, other.label]))


def batches(examples: Examples, size: int, rng: np.random.Generator) -> Iterator[Examples]:
    """Endless shuffled batches: every pass over the data in a new order, what is too few at its end left out."""
    size = min(size, len(examples))
    while True:
        order = rng.permutation(len(examples))
        for at in range(0, len(order) - size + 1, size):
            yield examples.pick(order[at : at + size])
