"""Fix the input shapes of a model and learn the dtype and shape of every tensor at them.

Sizes the user gives win; a batch-like dimension becomes 1; other free dimensions take the first of a short list of
plausible sizes at which the model runs. What was assumed is reported, never hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import onnx

from edgeengine.errors import UserError, near
from edgeengine.graph.child import run_in_child
from edgeengine.graph.costs import Executions, Shape
from edgeengine.graph.dataflow import Dataflow, bodies
from edgeengine.graph.dtypes import FROM_ONNX, numpy_dtype
from edgeengine.graph.load import Model
from edgeengine.graph.probe import ProbeJob, ProbeResult
from edgeengine.graph.sizes import assumptions, attempts, dims_of, free_symbols, given_sizes, symbol_of
from edgeengine.graph.tensors import nbytes
from edgeengine.spec.tensor import TensorSpec

# Models with more weights than this are run with batch 1 only: a product of matrices, unlike one by a vector, keeps
# returning to all of a weight, which then stays in memory.
_SECOND_LOOK_BYTES = 1 << 30


@dataclass(frozen=True)
class Tensors:
    """What a run at the input shapes `fixed` showed.

    `inputs` are the model's own, symbolic dimensions by name; `values` those of them the user fixed. `at` maps every
    run-time tensor, and every graph input, that a boundary can carry to its dtype and concrete shape; `unportable` maps
    the rest to ONNX Runtime's type text. `batched` are the same input shapes with batch 2, None where no batch is free
    or the model does not run so, and `batched_at` every tensor's shape then. `executions` tells what ran inside bodies
    (see `costs.py`). `assumed` are sentences for the user.
    """

    inputs: tuple[TensorSpec, ...]
    values: dict[str, np.ndarray]
    fixed: dict[str, tuple[int, ...]]
    batched: dict[str, tuple[int, ...]] | None
    at: dict[str, TensorSpec]
    batched_at: dict[str, tuple[int, ...]]
    unportable: dict[str, str]
    executions: Executions
    assumed: tuple[str, ...]

    def shape(self, name: str) -> Shape | None:
        """The concrete shape of a tensor, None where it was not seen."""
        spec = self.at.get(name)
        return None if spec is None else tuple(d for d in spec.shape if isinstance(d, int))


def output_specs(flow: Dataflow, tensors: Tensors) -> tuple[TensorSpec, ...]:
    """The model's own outputs, symbolic dimensions by name where the model declares them, "?" where it does not."""
    specs = []
    for value in flow.model.proto.graph.output:
        seen = tensors.at[value.name]
        declared = dims_of(value) or ("?",) * len(seen.shape)
        fits = len(declared) == len(seen.shape) and all(
            isinstance(d, str) or d == s for d, s in zip(declared, seen.shape, strict=True)
        )
        specs.append(TensorSpec(value.name, seen.dtype, declared if fits else ("?",) * len(seen.shape)))
    return tuple(specs)


def probe(
    flow: Dataflow,
    shapes: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, np.ndarray] | None = None,
) -> Tensors:
    """Run the model in a child process. `shapes` and `values` (name -> array) fix inputs.

    Raises UserError for an unknown input name, a shape or value that does not fit the model, a model that does not load
    or run, and inputs or outputs that are no plain tensors.
    """
    model = flow.model
    values = check_values(model, values or {})
    wanted_shapes = {n: v.shape for n, v in values.items()} | {n: tuple(s) for n, s in (shapes or {}).items()}
    specs = tuple(_spec(model, i, wanted_shapes.get(i.name, ())) for i in model.inputs)
    given = given_sizes(model, specs, shapes or {}, values)
    batch, free = free_symbols(specs, given)
    wanted = [t for i in flow.order for t in flow.writes[i]]
    wanted += [t for i in sorted(flow.constants) for t in flow.writes[i]]
    wanted += [t for t in dict.fromkeys(flow.outputs) if t not in flow.producer and t not in flow.inputs]
    twice = batch if sum(map(nbytes, flow.initializers.values())) <= _SECOND_LOOK_BYTES else []
    axes = tuple((s.name, a) for s in specs for a, d in enumerate(s.shape) if isinstance(d, str) and symbol_of(s, a) in twice)
    wanted = [t for t in wanted if t not in flow.copies]
    job = ProbeJob(
        source=str(model.path),
        inputs=specs,
        attempts=tuple(attempts(specs, given, batch, free)),
        tensors=tuple(wanted),
        batch=axes,
        bodies=any(bodies(flow.nodes[i]) for i in flow.order),
    )
    found = run_in_child(job, values, ProbeResult, str(model.path))
    at = {s.name: TensorSpec(s.name, s.dtype, found.shapes[s.name]) for s in specs} | {t.name: t for t in found.tensors}
    at |= {copy: msgspec.structs.replace(at[t], name=copy) for copy, t in flow.copies.items() if t in at}
    for name in flow.outputs:
        if name in found.unportable:
            raise UserError(
                f"{model.path}: output {name!r} is a {found.unportable[name]}; only plain tensors can leave a model, "
                f"export it with tensors as outputs"
            )
    return Tensors(
        inputs=specs,
        values=values,
        fixed=found.shapes,
        batched=found.batched,
        at=at,
        batched_at=found.batched_shapes | (found.batched or {}),
        unportable=found.unportable | {copy: found.unportable[t] for copy, t in flow.copies.items() if t in found.unportable},
        executions=found.executions,
        assumed=tuple(assumptions(specs, given, found.shapes, values)),
    )


def check_values(model: Model, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Input values in the dtype the model wants. Raises UserError for unknown names and values that do not convert."""
    declared = {i.name: i for i in model.inputs}
    checked = {}
    for name, value in values.items():
        if name not in declared:
            raise UserError(f"{model.path}: has no input {name!r} to give a value to; {near(name, declared)}")
        dtype = FROM_ONNX.get(declared[name].type.tensor_type.elem_type)
        array = np.asarray(value)
        if dtype is None or dtype == "str":
            checked[name] = array.astype(object)
            continue
        wanted = numpy_dtype(dtype)
        with np.errstate(all="ignore"):
            converted = array.astype(wanted) if array.dtype.kind in "biuf" else None
        lossy = wanted.kind in "biu" and converted is not None and not np.array_equal(converted, array)
        if converted is None or lossy:
            raise UserError(f"{model.path}: value of input {name!r} is {array.dtype}, which does not convert to {dtype}")
        checked[name] = converted
    return checked


def declared_inputs(model: Model, shapes: Mapping[str, Sequence[int]]) -> tuple[TensorSpec, ...]:
    """The model's inputs at `shapes`, as far as given; other symbolic dimensions by name. Raises UserError for non-tensors."""
    specs = (_spec(model, i, shapes.get(i.name, ())) for i in model.inputs)
    return tuple(TensorSpec(s.name, s.dtype, tuple(shapes.get(s.name, s.shape))) for s in specs)


def _spec(model: Model, value: onnx.ValueInfoProto, shape: Sequence[int]) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    dtype = FROM_ONNX.get(value.type.tensor_type.elem_type) if kind == "tensor_type" else None
    if dtype is None:
        what = kind.removesuffix("_type") if kind and kind != "tensor_type" else "tensor of a type numpy lacks"
        raise UserError(
            f"{model.path}: input {value.name!r} is a {what}; only plain tensors can be fed, export it with tensors as inputs"
        )
    dims = dims_of(value)
    if dims is None:
        if not len(shape):
            raise UserError(f"{model.path}: input {value.name!r} declares no rank; give --shape {value.name}=DIMS")
        dims = ("?",) * len(shape)
    return TensorSpec(value.name, dtype, dims)
