"""Run a source model to learn what its tensors look like. The part of `shapes.py` that executes, so it runs in the
child.

Static shape inference stops at the first operator it does not know and knows a fifth of some models' tensors; a run
with the tensors as outputs, optimizations off, knows all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime as ort

from edgeengine.errors import UserError
from edgeengine.graph.dtypes import FROM_ORT
from edgeengine.graph.executions import executed_in_bodies
from edgeengine.graph.samples import draw
from edgeengine.graph.session import RUNTIME_ERRORS, first_line
from edgeengine.graph.source import Source, open_source
from edgeengine.spec.tensor import TensorSpec

# Tensors fetched by one session: all of them stay in memory until its run ends.
_CHUNK = 256


class ProbeJob(msgspec.Struct, frozen=True, tag="probe"):
    """`attempts` are complete input shapes, tried in order until the model runs. `tensors` are those to look at.

    `batch` are the free dimensions (input name, axis) that become 2 for a second look. `bodies` asks for what ran
    inside control-flow nodes.
    """

    source: str
    inputs: tuple[TensorSpec, ...]
    attempts: tuple[dict[str, tuple[int, ...]], ...]
    tensors: tuple[str, ...]
    batch: tuple[tuple[str, int], ...] = ()
    bodies: bool = False


class ProbeResult(msgspec.Struct, frozen=True):
    """`shapes` is the attempt that ran. `unportable` maps a tensor to the type no boundary carries.

    `batched` are the same shapes with batch 2, None where none is free or the model does not run so; `batched_shapes`
    are the tensors' shapes then. `executions`: see `costs.py`.
    """

    shapes: dict[str, tuple[int, ...]]
    tensors: tuple[TensorSpec, ...]
    unportable: dict[str, str]
    batched: dict[str, tuple[int, ...]] | None = None
    batched_shapes: dict[str, tuple[int, ...]] = {}
    executions: dict[str, tuple[tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]], ...]] = {}


def run_probe(job: ProbeJob, values: Mapping[str, np.ndarray]) -> ProbeResult:
    """Find input shapes that run, then the dtype and shape of every tensor asked for. Raises UserError if none runs."""
    with open_source(Path(job.source)) as source:
        return _probe(job, values, source)


def _probe(job: ProbeJob, values: Mapping[str, np.ndarray], source: Source) -> ProbeResult:
    path = Path(job.source)
    session = _load(path, source, ())
    shapes = _first_that_runs(path, session, job, values)
    batched = _with_batch_two(session, job, shapes, values)
    del session
    feeds = draw(job.inputs, shapes, values, run=0)
    twice = draw(job.inputs, batched, values, run=0) if batched is not None else None
    tensors: list[TensorSpec] = []
    unportable: dict[str, str] = {}
    batched_shapes: dict[str, tuple[int, ...]] = {}
    for at in range(0, len(job.tensors), _CHUNK):
        names = job.tensors[at : at + _CHUNK]
        session = _load(path, source, names)
        kinds = {o.name: o.type for o in session.get_outputs()}
        portable = [n for n in names if kinds[n] in FROM_ORT]
        unportable.update({n: kinds[n] for n in names if kinds[n] not in FROM_ORT})
        if portable:
            arrays = _run(path, session, portable, feeds)
            tensors += [TensorSpec(n, FROM_ORT[kinds[n]], a.shape) for n, a in zip(portable, arrays, strict=True)]
            if twice is not None:
                arrays = _run(path, session, portable, twice)
                batched_shapes.update({n: a.shape for n, a in zip(portable, arrays, strict=True)})
        del session
    executions = executed_in_bodies(source, feeds) if job.bodies else {}
    return ProbeResult(shapes, tuple(tensors), unportable, batched, batched_shapes, executions)


def _load(path: Path, source: Source, extra: tuple[str, ...]) -> ort.InferenceSession:
    try:
        return source.session(extra)
    except RUNTIME_ERRORS as e:
        raise UserError(f"{path}: ONNX Runtime cannot load it: {first_line(e)}; mend or export the model again") from e


def _run(source: Path, session: ort.InferenceSession, names: list[str], feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    try:
        return list(session.run(names, feeds))
    except RUNTIME_ERRORS as e:
        raise UserError(f"{source}: ONNX Runtime cannot run it unoptimized: {first_line(e)}") from e


def _first_that_runs(
    source: Path, session: ort.InferenceSession, job: ProbeJob, values: Mapping[str, np.ndarray]
) -> dict[str, tuple[int, ...]]:
    """The first attempt that runs and gives no empty output; failing that, the first that runs."""
    fallback = None
    error: Exception | None = None
    names = [o.name for o in session.get_outputs() if o.type in FROM_ORT]
    for shapes in job.attempts:
        try:
            arrays = session.run(names, draw(job.inputs, shapes, values, run=0)) if names else []
        except RUNTIME_ERRORS as e:
            error = error or e
            continue
        if all(np.size(a) for a in arrays):
            return shapes
        fallback = fallback or shapes
    if fallback is not None:
        return fallback
    reason = first_line(error) if error is not None else "no input shapes to try"
    sizes = f"any of {len(job.attempts)} input sizes tried" if len(job.attempts) > 1 else "random inputs"
    raise UserError(
        f"{source}: does not run with {sizes} ({reason}); "
        f"give the sizes with --shape NAME=DIMS and values it needs with --input NAME=VALUE "
        f"(inputs: {_listed(job.inputs)})"
    )


def _with_batch_two(
    session: ort.InferenceSession,
    job: ProbeJob,
    shapes: dict[str, tuple[int, ...]],
    values: Mapping[str, np.ndarray],
) -> dict[str, tuple[int, ...]] | None:
    if not job.batch:
        return None
    axes = set(job.batch)
    batched = {n: tuple(2 if (n, a) in axes else d for a, d in enumerate(dims)) for n, dims in shapes.items()}
    names = [o.name for o in session.get_outputs() if o.type in FROM_ORT]
    try:
        session.run(names, draw(job.inputs, batched, values, run=0))
    except RUNTIME_ERRORS:
        # The model declares a free batch and yet runs with one only: there is no second look to take.
        return None
    return batched


def _listed(inputs: tuple[TensorSpec, ...]) -> str:
    return ", ".join(f"{i.name} {i.dtype}[{','.join(map(str, i.shape))}]" for i in inputs)
