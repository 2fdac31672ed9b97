"""Samples to calibrate and to evaluate with: one .npz, an array per model input, and `label` where accuracy counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgeengine.conversion.base import Arrays
from edgeengine.errors import UserError
from edgeengine.graph.dtypes import FROM_ORT, numpy_dtype
from edgeengine.graph.session import create

LABEL = "label"
_FREE_ROWS = 1  # per run where the batch is free: then every sample counts alike, and no run is shorter than the others


@dataclass(frozen=True)
class Samples:
    """Feeds, one per run, all of the same shapes. `labels` int64 [count], in the order of the rows run."""

    feeds: tuple[Arrays, ...]
    labels: np.ndarray | None

    def __iter__(self) -> Iterator[Arrays]:
        return iter(self.feeds)

    def __len__(self) -> int:
        return len(self.feeds)


def read_samples(arrays: Arrays, model: str, where: str) -> Samples:
    """Cut `arrays` into runs of the .onnx file `model`. `where` names their file in errors.

    An input of shape [batch, …] takes an array [count, …]; one whose declared shape is the array's own takes it whole, in
    every run. A fixed batch takes so many rows a run; rows left over are not used. Raises UserError.
    """
    inputs = create(model, optimized=False).get_inputs()
    missing = [i.name for i in inputs if i.name not in arrays]
    if missing:
        raise UserError(f"{where}: has no array {missing[0]!r}; give one per input of the model: {[i.name for i in inputs]}")
    unknown = sorted(set(arrays) - {i.name for i in inputs} - {LABEL})
    if unknown:
        raise UserError(f"{where}: the model has no input {unknown[0]!r}; its inputs are {[i.name for i in inputs]}")
    cut: dict[str, np.ndarray] = {}
    for i in inputs:
        array = np.asarray(arrays[i.name])
        dtype = FROM_ORT.get(i.type, "")
        if dtype == "str" or array.dtype.kind not in "biuf":
            raise UserError(f"{where}: {i.name!r} holds {array.dtype}; only numbers calibrate")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UserError(f"{where}: {i.name!r} holds NaN or infinity; leave such samples out")
        with np.errstate(over="ignore", invalid="ignore"):
            taken = array.astype(numpy_dtype(dtype))
        if not (np.isfinite(taken).all() if taken.dtype.kind == "f" else np.array_equal(taken, array)):
            raise UserError(f"{where}: {i.name!r} holds {array.dtype} values that {dtype} cannot, which the model wants")
        cut[i.name] = _runs(taken, list(i.shape), f"{where}: {i.name!r}")
    counts = {n: len(a) for n, a in cut.items() if len(a) != 1}
    if len(set(counts.values())) > 1:
        raise UserError(f"{where}: different numbers of samples: {counts}; give as many for each input")
    count = max(counts.values(), default=1)
    if not all(len(a) for a in cut.values()):
        raise UserError(f"{where}: holds no sample; give at least one, better a hundred")
    feeds = tuple({n: a[0 if len(a) == 1 else k, ...] for n, a in cut.items()} for k in range(count))
    return Samples(feeds, _labels(arrays, feeds, where))


def _runs(array: np.ndarray, declared: list[int | str | None], where: str) -> np.ndarray:
    """[count, …] -> [runs, rows, …]."""
    fixed = [d for d in declared if isinstance(d, int)]
    if len(fixed) == len(declared) and array.shape == tuple(fixed):
        return array[None]
    fits = len(array.shape) == len(declared) > 0 and all(
        not isinstance(d, int) or d == s for d, s in zip(declared[1:], array.shape[1:], strict=True)
    )
    if not fits:
        raise UserError(f"{where} is {list(array.shape)}, the model wants {declared} with samples along the first axis")
    rows = declared[0] if isinstance(declared[0], int) else _FREE_ROWS
    runs = len(array) // rows
    return array[: runs * rows].reshape(runs, rows, *array.shape[1:])


def _labels(arrays: Arrays, feeds: tuple[Arrays, ...], where: str) -> np.ndarray | None:
    if LABEL not in arrays:
        return None
    labels = np.asarray(arrays[LABEL])
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UserError(f"{where}: 'label' is {labels.dtype} {list(labels.shape)}; give one class number per sample")
    rows = len(feeds) * max(len(v) for v in feeds[0].values() if v.ndim)
    if len(labels) < rows:
        raise UserError(f"{where}: {len(labels)} labels for {rows} samples; give one per sample")
    return labels[:rows].astype(np.int64)
