"""How far two sets of results are apart, as shares of the range of the first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from edgeengine.conversion.base import OpenSource
from edgeengine.errors import UserError
from edgeengine.graph.session import RUNTIME_ERRORS, create, first_line

BATCHES = (1, 3, 8)
TOLERANCE = 1e-4
"""Largest allowed difference from the source, as a share of the range of the source's output."""


class Difference(msgspec.Struct, frozen=True):
    """Over all elements of one output: the largest absolute difference, and the largest, the root of the mean square and the
    mean as shares of the reference's range (largest less smallest finite element). Infinite where shapes or NaNs differ."""

    output: str
    max_abs: float
    max: float
    rms: float
    mean: float


class Check(msgspec.Struct, frozen=True):
    """One comparison with the source: the batch run at (None where it is fixed), and the largest differences of any output."""

    batch: int | None
    max_abs_diff: float
    max_rel_diff: float


def difference(name: str, reference: np.ndarray, other: np.ndarray) -> Difference:
    """NaN equals NaN, infinity itself. What is no number is equal or infinitely apart."""
    reference, other = np.asarray(reference), np.asarray(other)
    if reference.shape != other.shape or reference.dtype.kind not in "biuf" or other.dtype.kind not in "biuf":
        apart = 0.0 if reference.shape == other.shape and np.array_equal(reference, other) else float("inf")
        return Difference(name, apart, apart, apart, apart)
    r, o = reference.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.where((r == o) | (np.isnan(r) & np.isnan(o)), 0.0, np.abs(r - o))
    gap = np.where(np.isnan(gap), np.inf, gap)
    if not gap.size or not gap.any():
        return Difference(name, 0.0, 0.0, 0.0, 0.0)
    finite = r[np.isfinite(r)]
    span = (float(np.ptp(finite)) or float(np.abs(finite).max()) or 1.0) if finite.size else 1.0
    worst = float(gap.max())
    return Difference(name, worst, worst / span, float(np.sqrt(np.mean(gap**2))) / span, float(gap.mean()) / span)


def verify(source: OpenSource, model: str, where: str) -> list[Check]:
    """Run the source and the .onnx file `model` on the same inputs: at `BATCHES`, or three times where the batch is fixed.

    Raises UserError where the model does not load or run, or differs by more than `TOLERANCE` of an output's range.
    """
    try:
        session = create(model, optimized=False)
    except RUNTIME_ERRORS as e:
        raise UserError(f"{where}: ONNX Runtime does not load the result ({first_line(e)}); try another --opset") from e
    names = [o.name for o in session.get_outputs()]
    taken = {i.name for i in session.get_inputs()}
    checks = []
    for draw, batch in enumerate(BATCHES):
        at = f"batch {batch}" if source.free_batch else f"inputs {draw + 1}"
        feeds = source.feeds(batch, draw)
        expected = source.run(feeds)
        try:
            actual = session.run(names, {n: v for n, v in feeds.items() if n in taken})
        except RUNTIME_ERRORS as e:
            raise UserError(
                f"{where}: the result does not run at {at} ({first_line(e)}); the source takes a size from its example"
            ) from e
        if len(expected) != len(actual):
            raise UserError(f"{where}: gives {len(expected)} outputs, the result {len(actual)}; return tensors only")
        found = [difference(n, e, a) for n, e, a in zip(names, expected, actual, strict=True)]
        worst = max(found, key=lambda d: d.max)
        if not worst.max <= TOLERANCE:
            raise UserError(
                f"{where}: at {at} output {worst.output!r} differs from the source by {worst.max:.2g} of its range, allowed "
                f"{TOLERANCE:g}; look for a size or a value taken from the example, or try another --opset"
            )
        checks.append(Check(batch if source.free_batch else None, max(d.max_abs for d in found), worst.max))
    return checks


def worst_rms(found: Sequence[Difference]) -> Difference:
    return max(found, key=lambda d: d.rms)
