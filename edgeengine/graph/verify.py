"""Prove that candidate subgraphs compute what the source model computes. Executes models, so it runs in the child.

The reference is the whole source model, CPU, one thread, optimizations off, with every boundary tensor as an extra
output. Each candidate, optimizations off, is fed the reference's tensors and must return the same bits (NaN equals
NaN). The finest chain, optimizations on, is run end to end and may differ by max(1e-4 of the output range, twice what
the optimized whole does); 1e-2 where it passes float16 tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from edgeengine.errors import InternalError, UserError
from edgeengine.graph.samples import draw
from edgeengine.graph.session import RUNTIME_ERRORS, create, first_line
from edgeengine.graph.source import Source, open_source
from edgeengine.spec.bundle import Exactness, SubgraphSpec
from edgeengine.spec.tensor import TensorSpec

TOLERANCE = 1e-4
TOLERANCE_FLOAT16 = 1e-2

Arrays = dict[str, np.ndarray]


class VerifyJob(msgspec.Struct, frozen=True, tag="verify"):
    """`root` holds the subgraphs' files. `shapes` are used for `runs` inputs, `batched` for one more.

    `outputs` are the model's own outputs, each once; `pins` the float16 boundary tensors (see `pins.py`). Where inputs were
    fixed, `original` is the model before, and `fixed` names those of the values that it is fed.
    """

    source: str
    root: str
    segments: int
    subgraphs: tuple[SubgraphSpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]]
    batched: dict[str, tuple[int, ...]] | None = None
    runs: int = 3
    pins: tuple[str, ...] = ()
    original: str = ""
    fixed: tuple[str, ...] = ()


def run_verify(job: VerifyJob, values: Mapping[str, np.ndarray]) -> Exactness:
    """Verify every candidate and the finest chain.

    Raises UserError when the source does not repeat itself or the optimized chain leaves the tolerance; InternalError
    naming the subgraph and the first diverging tensor when a candidate is not bit-equal.
    """
    with open_source(Path(job.source), Path(job.root)) as source:
        references = _references(job, values, source)
        if job.original:
            _check_original(job, values, references)
        for subgraph in job.subgraphs:
            check_candidate(Path(job.root), subgraph, references, source.lean)
        whole, chain = _optimized_whole(job, references, source), _optimized_chain(job, references, source.lean)
    whole_rel, chain_rel, chain_abs = 0.0, 0.0, 0.0
    for reference, w, c in zip(references, whole, chain, strict=True):
        for name in job.outputs:
            whole_rel = max(whole_rel, _difference(reference[name], w[name])[1])
            absolute, relative = _difference(reference[name], c[name])
            chain_abs, chain_rel = max(chain_abs, absolute), max(chain_rel, relative)
    bound = max(TOLERANCE_FLOAT16 if job.pins else TOLERANCE, 2 * whole_rel)
    if not chain_rel <= bound:
        raise UserError(
            f"{job.source}: with optimizations on, its {job.segments} parts run one after the other differ from it by "
            f"{chain_rel:.2g} of the output range, more than {bound:.2g} "
            f"({_first_divergence(job, references, chain, bound)}); "
            f"use fewer parts or cut elsewhere"
        )
    return Exactness(
        runs=len(references),
        bit_equal_unoptimized=True,
        max_abs_diff=chain_abs,
        max_rel_diff_optimized=chain_rel,
        whole_rel_diff_optimized=whole_rel,
    )


def check_candidate(root: Path, subgraph: SubgraphSpec, references: Iterable[Arrays], lean: bool = False) -> None:
    """Run one subgraph, optimizations off, on the reference's tensors. Raises InternalError unless it is bit-equal."""
    names = [o.name for o in subgraph.outputs]
    try:
        session = create(str(root / subgraph.file), optimized=False, lean=lean)
        for run, reference in enumerate(references):
            feeds = {i.name: reference[i.name] for i in subgraph.inputs}
            for name, array in zip(names, session.run(names, feeds), strict=True):
                if not bit_equal(reference[name], array):
                    absolute, relative = _difference(reference[name], array)
                    raise InternalError(
                        f"subgraph {subgraph.name}: tensor {name!r} is not bit-equal to the source's on run {run} "
                        f"(differs by {absolute:.3g}, {relative:.2g} of its range); please report this model"
                    )
    except RUNTIME_ERRORS as e:
        raise InternalError(
            f"subgraph {subgraph.name}: ONNX Runtime refuses it: {first_line(e)}; please report this model"
        ) from e


def bit_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Same dtype, shape and bits; any NaN equals any NaN, but 0.0 and -0.0 differ."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    bits = np.dtype(f"u{a.dtype.itemsize}")
    same = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return bool(np.all(same | (np.isnan(a) & np.isnan(b))))


def _difference(reference: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """(largest absolute difference, the same relative to the reference's range). Infinite where they do not compare."""
    reference, other = np.asarray(reference), np.asarray(other)
    if reference.shape != other.shape or reference.dtype.kind not in "biuf" or other.dtype.kind not in "biuf":
        same = reference.shape == other.shape and bool(np.array_equal(reference, other))
        return (0.0, 0.0) if same else (float("inf"), float("inf"))
    r, o = reference.astype(np.float64), other.astype(np.float64)
    same = (r == o) | (np.isnan(r) & np.isnan(o))
    if np.all(same):
        return 0.0, 0.0
    with np.errstate(invalid="ignore"):
        gap = np.abs(r - o)[~same]
    if not np.all(np.isfinite(gap)):
        return float("inf"), float("inf")
    finite = r[np.isfinite(r)]
    span = float(finite.max() - finite.min()) or float(np.abs(finite).max()) or 1.0
    return float(gap.max()), float(gap.max()) / span


def _references(job: VerifyJob, values: Mapping[str, np.ndarray], source: Source) -> list[Arrays]:
    """For each run: the model inputs, all boundary tensors and the model outputs, from the source model."""
    inputs = {i.name for i in job.inputs}
    wanted = dict.fromkeys(t.name for s in job.subgraphs for t in (*s.inputs, *s.outputs))
    # A graph output that is a graph input passes through; ONNX Runtime is not asked to prove it.
    names = [n for n in (wanted | dict.fromkeys(job.outputs)) if n not in inputs]
    runs = [draw(job.inputs, job.shapes, values, run) for run in range(job.runs)]
    if job.batched is not None:
        runs.append(draw(job.inputs, job.batched, values, job.runs))
    try:
        session = source.session(names, pins=job.pins)
        references = [feeds | dict(zip(names, session.run(names, feeds), strict=True)) for feeds in runs]
        again = session.run(names, runs[0]) if names else []
    except RUNTIME_ERRORS as e:
        raise UserError(f"{job.source}: ONNX Runtime cannot run it: {first_line(e)}") from e
    for name, array in zip(names, again, strict=True):
        if not bit_equal(references[0][name], array):
            raise UserError(f"{job.source}: tensor {name!r} changes from run to run on the same input; it cannot be verified")
    return references


def _check_original(job: VerifyJob, values: Mapping[str, np.ndarray], references: Iterable[Arrays]) -> None:
    """The model with fixed inputs gives the same bits as the original fed the same values."""
    given = {name: values[name] for name in job.fixed}
    try:
        with open_source(Path(job.original)) as source:
            session = source.session(pins=job.pins)
            for reference in references:
                feeds = given | {i.name: reference[i.name] for i in job.inputs}
                for name, array in zip(job.outputs, session.run(list(job.outputs), feeds), strict=True):
                    # Float16 is rounded elsewhere in the two models (see `pins.py`).
                    near = bool(job.pins) and _difference(reference[name], array)[1] <= TOLERANCE_FLOAT16
                    if not near and not bit_equal(reference[name], array):
                        raise InternalError(
                            f"{job.original}: output {name!r} with {', '.join(job.fixed)} fixed is not bit-equal to the "
                            f"model's own; please report this model"
                        )
    except RUNTIME_ERRORS as e:
        raise UserError(f"{job.original}: ONNX Runtime cannot run it with the fixed inputs: {first_line(e)}") from e


def _optimized_whole(job: VerifyJob, references: list[Arrays], source: Source) -> list[Arrays]:
    try:
        session = source.session(optimized=True)
        inputs = [i.name for i in job.inputs]
        names = list(job.outputs)
        return [dict(zip(names, session.run(names, {n: r[n] for n in inputs}), strict=True)) for r in references]
    except RUNTIME_ERRORS as e:
        raise UserError(f"{job.source}: ONNX Runtime cannot run it with optimizations on: {first_line(e)}") from e


def _optimized_chain(job: VerifyJob, references: list[Arrays], lean: bool) -> list[Arrays]:
    """The finest chain on its own intermediate tensors, one session at a time."""
    states = [{i.name: r[i.name] for i in job.inputs} for r in references]
    for subgraph in _finest(job):
        names = [o.name for o in subgraph.outputs]
        try:
            session = create(str(Path(job.root) / subgraph.file), optimized=True, lean=lean)
            for state in states:
                arrays = session.run(names, {i.name: state[i.name] for i in subgraph.inputs})
                state.update(zip(names, arrays, strict=True))
        except RUNTIME_ERRORS as e:
            raise InternalError(
                f"subgraph {subgraph.name}: ONNX Runtime refuses it with optimizations on: {first_line(e)}"
            ) from e
    return states


def _first_divergence(job: VerifyJob, references: list[Arrays], chain: list[Arrays], bound: float) -> str:
    for subgraph in _finest(job):
        for output in subgraph.outputs:
            if any(_difference(r[output.name], c[output.name])[1] > bound for r, c in zip(references, chain, strict=True)):
                return f"first in part {subgraph.name}, tensor {output.name!r}"
    return "first in the outputs"


def _finest(job: VerifyJob) -> list[SubgraphSpec]:
    return sorted((s for s in job.subgraphs if s.stop == s.start + 1), key=lambda s: s.start)
