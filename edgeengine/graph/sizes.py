"""Choose sizes for the dimensions a model leaves free.

Sizes the user gives win; a batch-like dimension becomes 1; other free dimensions take the first of a short list of
plausible sizes at which the model runs (which `probe.py` finds out). What was assumed is put in words for the user.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from edgeengine.errors import UserError, near
from edgeengine.graph.dtypes import numpy_dtype
from edgeengine.graph.load import Model
from edgeengine.spec.tensor import TensorSpec, format_shape

_IMAGE = (224, 256, 320, 128, 640, 299, 64, 48, 32)
_TOKENS = (128, 64, 32, 16, 8)
_SIGNAL = (16000, 1024, 576, 512, 288, 256, 128)
_ANY = (128, 64, 32, 16, 8, 256, 512, 576, 1024, 4, 2, 1)
_BATCH_NAMES = ("batch", "batch_size", "n", "b")

# A free dimension: its name where it has one (the same name is the same size everywhere), else (input, axis).
Symbol = str | tuple[str, int]


def dims_of(value: onnx.ValueInfoProto) -> tuple[int | str, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or "?"
        for d in value.type.tensor_type.shape.dim
    )


def symbol_of(spec: TensorSpec, axis: int) -> Symbol:
    dim = spec.shape[axis]
    return dim if isinstance(dim, str) and dim != "?" else (spec.name, axis)


def given_sizes(
    model: Model, specs: tuple[TensorSpec, ...], shapes: Mapping[str, Sequence[int]], values: Mapping[str, np.ndarray]
) -> dict[Symbol, int]:
    """The sizes that user shapes and values set."""
    by_name = {s.name: s for s in specs}
    given: dict[Symbol, int] = {}
    for name, shape in itertools.chain(shapes.items(), ((n, v.shape) for n, v in values.items())):
        if name not in by_name:
            raise UserError(f"{model.path}: has no input {name!r} to give a shape to; {near(name, by_name)}")
        spec = by_name[name]
        text = format_shape(list(shape))
        if len(shape) != len(spec.shape):
            raise UserError(f"{model.path}: input {name!r} has {len(spec.shape)} dimensions, the shape {text} has {len(shape)}")
        for axis, (dim, size) in enumerate(zip(spec.shape, shape, strict=True)):
            if isinstance(dim, int):
                if dim != size:
                    raise UserError(f"{model.path}: dimension {axis} of input {name!r} is {dim}, the shape {text} says {size}")
            elif given.setdefault(symbol_of(spec, axis), int(size)) != size:
                raise UserError(f"{model.path}: dimension {dim!r} is given two sizes; {name!r} with {text} contradicts another")
    return given


def free_symbols(specs: tuple[TensorSpec, ...], given: Mapping[Symbol, int]) -> tuple[list[Symbol], list[Symbol]]:
    """The free symbols: batch-like ones, and the others."""
    batch: dict[Symbol, None] = {}
    others: dict[Symbol, None] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.shape):
            symbol = symbol_of(spec, axis)
            if isinstance(dim, str) and symbol not in given:
                leading = axis == 0 and len(spec.shape) > 1
                (batch if leading or dim.lower() in _BATCH_NAMES else others)[symbol] = None
    return list(batch), [s for s in others if s not in batch]


def attempts(
    specs: tuple[TensorSpec, ...], given: Mapping[Symbol, int], batch: list[Symbol], free: list[Symbol]
) -> Iterator[dict[str, tuple[int, ...]]]:
    base = dict(given) | dict.fromkeys(batch, 1)
    if not free:
        yield {s.name: shape_of(s, base, ()) for s in specs}
        return
    sizes = _sizes(specs)
    for size in sizes:
        yield {s.name: shape_of(s, base | dict.fromkeys(free, size), ()) for s in specs}
    # Some free dimensions may be batches in disguise: one of them large and the others 1.
    if len(free) > 1:
        for large, size in itertools.product(free, sizes):
            yield {s.name: shape_of(s, base | dict.fromkeys(free, 1) | {large: size}, ()) for s in specs}


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


def shape_of(spec: TensorSpec, sizes: Mapping[Symbol, int], otherwise: tuple[int, ...]) -> tuple[int, ...]:
    dims = []
    for axis, dim in enumerate(spec.shape):
        if isinstance(dim, int):
            dims.append(dim)
        else:
            symbol = symbol_of(spec, axis)
            dims.append(sizes[symbol] if symbol in sizes else otherwise[axis])
    return tuple(dims)


def assumptions(
    specs: tuple[TensorSpec, ...],
    given: Mapping[Symbol, int],
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, np.ndarray],
) -> Iterator[str]:
    for spec in specs:
        if any(isinstance(d, str) and symbol_of(spec, a) not in given for a, d in enumerate(spec.shape)):
            yield f"assumed {spec.name}={format_shape(shapes[spec.name])}"
        if spec.shape == () and spec.name not in values and numpy_dtype(spec.dtype).kind in "iu":
            yield f"assumed {spec.name} is 0 or 1; give --input {spec.name}=VALUE if it selects something"
