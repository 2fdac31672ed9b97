"""Fix the input shapes of a model and learn the dtype and shape of every tensor at them.

Sizes the user gives win; a batch-like dimension becomes 1; other free dimensions take the first of a short list of plausible
sizes at which the model runs. What was assumed is reported, never hidden.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from edgeengine.errors import UserError
from edgeengine.graph.child import run_in_child
from edgeengine.graph.costs import Executions, Shape
from edgeengine.graph.dataflow import Dataflow, bodies
from edgeengine.graph.dtypes import FROM_ONNX, numpy_dtype
from edgeengine.graph.load import Model
from edgeengine.graph.probe import ProbeJob, ProbeResult
from edgeengine.spec.tensor import TensorSpec, format_shape

_IMAGE = (224, 256, 320, 128, 640, 299, 64, 48, 32)
_TOKENS = (128, 64, 32, 16, 8)
_SIGNAL = (16000, 1024, 576, 512, 288, 256, 128)
_ANY = (128, 64, 32, 16, 8, 256, 512, 576, 1024, 4, 2, 1)
_BATCH_NAMES = ("batch", "batch_size", "n", "b")

# A free dimension: its name where it has one (the same name is the same size everywhere), else (input, axis).
_Symbol = str | tuple[str, int]


@dataclass(frozen=True)
class Tensors:
    """What a run at the input shapes `fixed` showed.

    `inputs` are the model's own, symbolic dimensions by name; `values` those of them the user fixed.
    `at` maps every run-time tensor, and every graph input, that a boundary can carry to its dtype and concrete shape;
    `unportable` maps the rest to ONNX Runtime's type text. `batched` are the same input shapes with batch 2, None
    where no batch is free or the model does not run so, and `batched_at` every tensor's shape then. `executions` tells what ran
    inside bodies (see `costs.py`). `assumed` are sentences for the user.
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


def input_specs(
    model: Model, shapes: Mapping[str, Sequence[int]] | None, values: Mapping[str, np.ndarray] | None
) -> tuple[TensorSpec, ...]:
    """The model's own inputs, symbolic dimensions by name. Raises UserError for an input no boundary can carry."""
    return tuple(
        _spec(model, i, (shapes or {}).get(i.name, np.shape((values or {}).get(i.name)))) for i in model.inputs
    )


def output_specs(flow: Dataflow, tensors: Tensors) -> tuple[TensorSpec, ...]:
    """The model's own outputs, symbolic dimensions by name where the model declares them, "?" where it does not."""
    specs = []
    for value in flow.model.proto.graph.output:
        seen = tensors.at[value.name]
        declared = _dims(value) or ("?",) * len(seen.shape)
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

    Raises UserError for an unknown input name, a shape or value that does not fit the model, a model that does not load or
    run, and inputs or outputs that are no plain tensors.
    """
    model = flow.model
    values = check_values(model, values or {})
    wanted_shapes = {n: v.shape for n, v in values.items()} | {n: tuple(s) for n, s in (shapes or {}).items()}
    specs = tuple(_spec(model, i, wanted_shapes.get(i.name, ())) for i in model.inputs)
    given = _given(model, specs, shapes or {}, values)
    batch, free = _symbols(specs, given)
    wanted = [t for i in flow.order for t in flow.writes[i]]
    wanted += [t for i in sorted(flow.constants) for t in flow.writes[i]]
    wanted += [t for t in dict.fromkeys(flow.outputs) if t not in flow.producer and t not in flow.inputs]
    axes = tuple(
        (s.name, a) for s in specs for a, d in enumerate(s.shape) if isinstance(d, str) and _symbol(s, a) in batch
    )
    job = ProbeJob(
        source=str(model.path),
        inputs=specs,
        attempts=tuple(_attempts(specs, given, batch, free)),
        tensors=tuple(wanted),
        batch=axes,
        bodies=any(bodies(flow.nodes[i]) for i in flow.order),
    )
    found = run_in_child(job, values, ProbeResult, str(model.path))
    at = {s.name: TensorSpec(s.name, s.dtype, found.shapes[s.name]) for s in specs} | {t.name: t for t in found.tensors}
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
        unportable=found.unportable,
        executions=found.executions,
        assumed=tuple(_assumptions(specs, given, found.shapes, values)),
    )


def near(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'a' or 'b'?", or the first few known names where none is near."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known are {', '.join(map(repr, names[:8]))}{', …' if len(names) > 8 else ''}"


def check_values(model: Model, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Input values in the dtype the model wants. Raises UserError for unknown names and for values that do not convert."""
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
            raise UserError(
                f"{model.path}: value of input {name!r} is {array.dtype}, which does not convert to {dtype}"
            )
        checked[name] = converted
    return checked


def _spec(model: Model, value: onnx.ValueInfoProto, shape: Sequence[int]) -> TensorSpec:
    kind = value.type.WhichOneof("value")
    dtype = FROM_ONNX.get(value.type.tensor_type.elem_type) if kind == "tensor_type" else None
    if dtype is None:
        what = kind.removesuffix("_type") if kind and kind != "tensor_type" else "tensor of a type numpy lacks"
        raise UserError(
            f"{model.path}: input {value.name!r} is a {what}; only plain tensors can be fed, export it with tensors as inputs"
        )
    dims = _dims(value)
    if dims is None:
        if not len(shape):
            raise UserError(f"{model.path}: input {value.name!r} declares no rank; give --shape {value.name}=DIMS")
        dims = ("?",) * len(shape)
    return TensorSpec(value.name, dtype, dims)


def _dims(value: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?"
        for d in value.type.tensor_type.shape.dim
    )


def _symbol(spec: TensorSpec, axis: int) -> _Symbol:
    dim = spec.shape[axis]
    return dim if isinstance(dim, str) and dim != "?" else (spec.name, axis)


def _given(
    model: Model, specs: tuple[TensorSpec, ...], shapes: Mapping[str, Sequence[int]], values: Mapping[str, np.ndarray]
) -> dict[_Symbol, int]:
    """The sizes that user shapes and values set."""
    by_name = {s.name: s for s in specs}
    given: dict[_Symbol, int] = {}
    for name, shape in itertools.chain(shapes.items(), ((n, v.shape) for n, v in values.items())):
        if name not in by_name:
            raise UserError(f"{model.path}: has no input {name!r} to give a shape to; {near(name, by_name)}")
        spec = by_name[name]
        text = format_shape(list(shape))
        if len(shape) != len(spec.shape):
            raise UserError(
                f"{model.path}: input {name!r} has {len(spec.shape)} dimensions, the shape {text} has {len(shape)}"
            )
        for axis, (dim, size) in enumerate(zip(spec.shape, shape, strict=True)):
            if isinstance(dim, int):
                if dim != size:
                    raise UserError(
                        f"{model.path}: dimension {axis} of input {name!r} is {dim}, the shape {text} says {size}"
                    )
            elif given.setdefault(_symbol(spec, axis), int(size)) != size:
                raise UserError(
                    f"{model.path}: dimension {dim!r} is given two sizes; {name!r} with {text} contradicts another"
                )
    return given


def _symbols(specs: tuple[TensorSpec, ...], given: Mapping[_Symbol, int]) -> tuple[list[_Symbol], list[_Symbol]]:
    """The free symbols: batch-like ones, and the others."""
    batch: dict[_Symbol, None] = {}
    others: dict[_Symbol, None] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.shape):
            symbol = _symbol(spec, axis)
            if isinstance(dim, str) and symbol not in given:
                leading = axis == 0 and len(spec.shape) > 1
                (batch if leading or dim.lower() in _BATCH_NAMES else others)[symbol] = None
    return list(batch), [s for s in others if s not in batch]


def _attempts(
    specs: tuple[TensorSpec, ...], given: Mapping[_Symbol, int], batch: list[_Symbol], free: list[_Symbol]
) -> Iterator[dict[str, tuple[int, ...]]]:
    base = dict(given) | dict.fromkeys(batch, 1)
    if not free:
        yield {s.name: _shape(s, base, ()) for s in specs}
        return
    sizes = _sizes(specs)
    for size in sizes:
        yield {s.name: _shape(s, base | dict.fromkeys(free, size), ()) for s in specs}
    # Some free dimensions may be batches in disguise: one of them large and the others 1.
    if len(free) > 1:
        for large, size in itertools.product(free, sizes):
            yield {s.name: _shape(s, base | dict.fromkeys(free, 1) | {large: size}, ()) for s in specs}


def _sizes(specs: tuple[TensorSpec, ...]) -> list[int]:
    free = [s for s in specs if not s.is_static]
    first: tuple[int, ...] = ()
    if any(len(s.shape) >= 4 for s in free):
        first = _IMAGE
    elif any(np.dtype(numpy_dtype(s.dtype)).kind in "iu" for s in free):
        first = _TOKENS
    elif all(len(s.shape) <= 2 for s in free):
        first = _SIGNAL
    return list(dict.fromkeys(first + _ANY))


def _shape(spec: TensorSpec, sizes: Mapping[_Symbol, int], otherwise: tuple[int, ...]) -> tuple[int, ...]:
    dims = []
    for axis, dim in enumerate(spec.shape):
        if isinstance(dim, int):
            dims.append(dim)
        else:
            symbol = _symbol(spec, axis)
            dims.append(sizes[symbol] if symbol in sizes else otherwise[axis])
    return tuple(dims)


def _assumptions(
    specs: tuple[TensorSpec, ...],
    given: Mapping[_Symbol, int],
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, np.ndarray],
) -> Iterator[str]:
    for spec in specs:
        if any(isinstance(d, str) and _symbol(spec, a) not in given for a, d in enumerate(spec.shape)):
            yield f"assumed {spec.name}={format_shape(shapes[spec.name])}"
        if spec.shape == () and spec.name not in values and numpy_dtype(spec.dtype).kind in "iu":
            yield f"assumed {spec.name} is 0 or 1; give --fix {spec.name}=VALUE if it selects something, like a sampling rate"
