"""A tape of ONNX nodes: the small builder that gradient rules, losses and optimizers are written with.

A `Tensor` is a name on a tape; arithmetic on it emits nodes of the default domain, so a rule reads as its formula. Equal
nodes are emitted once, equal constants are stored once. Invariant: nodes are emitted in topological order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgeengine.errors import InternalError
from edgeengine.graph.dtypes import TO_ONNX

# One entry per dimension: its size, None where it varies from run to run.
Dims = tuple[int | None, ...]
Scalar = float | int

_RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value on a tape. `dtype` is the numpy name; `known` its dimensions, None where the tape was not told."""

    tape: Tape
    name: str
    dtype: str
    known: Dims | None = None

    @property
    def shape(self) -> Dims:
        if self.known is None:
            raise InternalError(f"the shape of {self.name!r} is needed and not known")
        return self.known

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in ("float32", "float64", "float16")

    def __add__(self, other: Tensor | Scalar) -> Tensor:
        return self.tape.binary("Add", self, other)

    def __radd__(self, other: Scalar) -> Tensor:
        return self.tape.binary("Add", self, other)

    def __sub__(self, other: Tensor | Scalar) -> Tensor:
        return self.tape.binary("Sub", self, other)

    def __rsub__(self, other: Scalar) -> Tensor:
        return self.tape.binary("Sub", other, self)

    def __mul__(self, other: Tensor | Scalar) -> Tensor:
        return self if _is_one(other) else self.tape.binary("Mul", self, other)

    def __rmul__(self, other: Scalar) -> Tensor:
        return self * other

    def __truediv__(self, other: Tensor | Scalar) -> Tensor:
        return self if _is_one(other) else self.tape.binary("Div", self, other)

    def __rtruediv__(self, other: Scalar) -> Tensor:
        return self.op("Reciprocal") if other == 1 else self.tape.binary("Div", other, self)

    def __pow__(self, exponent: Tensor | Scalar) -> Tensor:
        return self * self if exponent == 2 else self.tape.binary("Pow", self, exponent)

    def __neg__(self) -> Tensor:
        return self.op("Neg")

    def __gt__(self, other: Tensor | Scalar) -> Tensor:
        return self.tape.binary("Greater", self, other)

    def __lt__(self, other: Tensor | Scalar) -> Tensor:
        return self.tape.binary("Less", self, other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.tape.emit("MatMul", self, other)

    def __and__(self, other: Tensor) -> Tensor:
        return self.tape.binary("And", self, other)

    def equal(self, other: Tensor | Scalar) -> Tensor:
        return self.tape.binary("Equal", self, other)

    def op(self, name: str, **attributes: Any) -> Tensor:
        """A node that keeps the shape and, but for Cast, the dtype."""
        return self.tape.emit(name, self, shape=self.known, **attributes)

    def cast(self, dtype: str) -> Tensor:
        return self if dtype == self.dtype else self.tape.emit("Cast", self, dtype=dtype, shape=self.known, to=TO_ONNX[dtype])

    def mask(self, condition: Tensor) -> Tensor:
        """This where `condition` (bool) holds, 0 elsewhere. ONNX Runtime's Where is thrice as slow as Cast and Mul."""
        return self * condition.cast(self.dtype)

    def sum(self, axes: Sequence[int], keep: bool = True) -> Tensor:
        return self._reduce("ReduceSum", axes, keep)

    def mean(self, axes: Sequence[int], keep: bool = True) -> Tensor:
        return self._reduce("ReduceMean", axes, keep)

    def _reduce(self, op: str, axes: Sequence[int], keep: bool) -> Tensor:
        if not axes:
            return self
        shape = None
        if self.known is not None:
            gone = {a % self.rank for a in axes}
            shape = tuple(1 if i in gone else d for i, d in enumerate(self.known) if keep or i not in gone)
        return self.tape.emit(op, self, self.tape.ints(axes), shape=shape, keepdims=int(keep))

    def reshape(self, dims: Sequence[int | None]) -> Tensor:
        """ONNX's convention: 0 keeps a dimension, -1 takes what is left; None stands for a single -1."""
        sizes = [-1 if d is None else d for d in dims]
        shape = None if 0 in sizes else tuple(None if d == -1 else d for d in sizes)
        return self.tape.emit("Reshape", self, self.tape.ints(sizes), shape=shape)

    def reshape_like(self, other: Tensor) -> Tensor:
        if self.known == other.shape and None not in other.shape:
            return self
        if other.shape.count(None) <= 1 and 0 not in other.shape:
            return self.reshape(other.shape)
        return self.tape.emit("Reshape", self, self.tape.shape_of(other), shape=other.known)

    def expand_like(self, other: Tensor) -> Tensor:
        return self.tape.emit("Expand", self, self.tape.shape_of(other), shape=other.known)

    def transpose(self, order: Sequence[int]) -> Tensor:
        if list(order) == list(range(len(order))):
            return self
        shape = tuple(self.known[i] for i in order) if self.known is not None else None
        return self.tape.emit("Transpose", self, shape=shape, perm=list(order))

    def swap_last(self) -> Tensor:
        return self.transpose([*range(self.rank - 2), self.rank - 1, self.rank - 2])

    def unsqueeze(self, axes: Sequence[int]) -> Tensor:
        if not axes:
            return self
        shape = None
        if self.known is not None:
            size = self.rank + len(axes)
            new, rest = {a % size for a in axes}, iter(self.known)
            shape = tuple(1 if i in new else next(rest) for i in range(size))
        return self.tape.emit("Unsqueeze", self, self.tape.ints(axes), shape=shape)

    def squeeze(self, axes: Sequence[int]) -> Tensor:
        return self.tape.emit("Squeeze", self, self.tape.ints(axes)) if axes else self

    def slice(self, axis: int, start: int, stop: int = _LAST, step: int = 1) -> Tensor:
        return self.slices({axis: (start, stop, step)})

    def slices(self, cuts: dict[int, tuple[int, int, int]]) -> Tensor:
        """Axis -> (start, stop, step)."""
        if not cuts:
            return self
        starts, stops, steps = zip(*cuts.values(), strict=True)
        ints = self.tape.ints
        return self.tape.emit("Slice", self, ints(starts), ints(stops), ints(list(cuts)), ints(steps))

    def pad(self, before: Sequence[int], after: Sequence[int], value: Scalar = 0.0) -> Tensor:
        if not any(before) and not any(after):
            return self
        return self.tape.emit("Pad", self, self.tape.ints([*before, *after]), self.tape.scalar(value, self.dtype))

    def summed_to(self, other: Tensor) -> Tensor:
        """Undo broadcasting: the sum over every axis along which `other` was repeated, in the shape of `other`.

        This tensor's own shape must be known, since it says which axes those are.
        """
        lead = self.rank - other.rank
        stretched = [lead + i for i, d in enumerate(other.shape) if d == 1 and self.shape[lead + i] != 1]
        axes = [*range(lead), *stretched]
        if not axes:
            return self
        return self.sum(axes).squeeze(list(range(lead))).told(other.known)

    def told(self, shape: Dims | None) -> Tensor:
        """The same tensor, its shape made known."""
        return Tensor(self.tape, self.name, self.dtype, shape)


class Tape:
    """Emits nodes. `prefix` starts every name it makes, so they meet no name of the model; `opset` is the default domain's.

    `gated` are names of gradients that are known to be 0 wherever the tensor they belong to is 0.
    """

    def __init__(self, prefix: str, opset: int):
        self.prefix, self.opset = prefix, opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.gated: set[str] = set()
        self._by_value: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        self._emitted: dict[tuple[Any, ...], tuple[Tensor, ...]] = {}

    def emit(
        self, op: str, *inputs: Tensor | None, dtype: str | None = None, shape: Dims | None = None, **attributes: Any
    ) -> Tensor:
        """One node with one output, of the dtype of its first input unless told."""
        (made,) = self.emit_many(op, inputs, [dtype or next(t for t in inputs if t is not None).dtype], [shape], **attributes)
        return made

    def emit_many(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        dtypes: Sequence[str],
        shapes: Sequence[Dims | None] | None = None,
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        """One node with an output per entry of `dtypes`; None is an absent input."""
        names = [t.name if t is not None else "" for t in inputs]
        key = (op, tuple(names), len(dtypes), repr(sorted(attributes.items())))
        if key in self._emitted:
            return self._emitted[key]
        outputs = tuple(
            Tensor(self, self._name(f"{op}_{i}" if i else op), t, s)
            for i, (t, s) in enumerate(zip(dtypes, shapes or [None] * len(dtypes), strict=True))
        )
        node = helper.make_node(op, names, [t.name for t in outputs], name=outputs[0].name, **attributes)
        self.nodes.append(node)
        if op not in _RANDOM:
            self._emitted[key] = outputs
        return outputs

    def _name(self, what: str) -> str:
        return f"{self.prefix}{len(self.nodes)}_{what}"

    def binary(self, op: str, a: Tensor | Scalar, b: Tensor | Scalar) -> Tensor:
        """A broadcasting node; a Python number becomes a constant of the other operand's dtype."""
        known = a if isinstance(a, Tensor) else b
        assert isinstance(known, Tensor)
        x, y = (t if isinstance(t, Tensor) else self.scalar(t, known.dtype) for t in (a, b))
        dtype = "bool" if op in ("Greater", "Less", "Equal", "And", "GreaterOrEqual", "LessOrEqual") else x.dtype
        return self.emit(op, x, y, dtype=dtype, shape=broadcast(x.known, y.known))

    def constant(self, value: np.ndarray) -> Tensor:
        value = np.asarray(value, order="C")
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._by_value:
            name = f"{self.prefix}c{len(self.constants)}"
            self.constants[name] = numpy_helper.from_array(value, name)
            self._by_value[key] = Tensor(self, name, value.dtype.name, value.shape)
        return self._by_value[key]

    def scalar(self, value: Scalar, dtype: str) -> Tensor:
        return self.constant(np.array(value, dtype).reshape(()))

    def ints(self, values: Sequence[int]) -> Tensor:
        return self.constant(np.asarray(list(values), np.int64))

    def shape_of(self, x: Tensor) -> Tensor:
        """The shape as an int64 vector: a constant where it is static."""
        sizes = [d for d in x.shape if d is not None]
        return self.ints(sizes) if len(sizes) == x.rank else self.emit("Shape", x, dtype="int64", shape=(x.rank,))

    def count(self, x: Tensor, axes: Sequence[int], dtype: str) -> Tensor | float:
        """The number of elements over `axes`: a number where it is static, else a scalar tensor."""
        sizes = [x.shape[a] for a in axes]
        if None not in sizes:
            return float(math.prod(d for d in sizes if d is not None))
        picked = self.emit("Gather", self.shape_of(x), self.ints([a % x.rank for a in axes]))
        return self.emit("ReduceProd", picked, shape=(), keepdims=0).cast(dtype)

    def zeros_like(self, x: Tensor, dtype: str | None = None) -> Tensor:
        value = numpy_helper.from_array(np.zeros(1, dtype or x.dtype))
        return self.emit("ConstantOfShape", self.shape_of(x), dtype=dtype or x.dtype, shape=x.known, value=value)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        return parts[0] if len(parts) == 1 else self.emit("Concat", *parts, axis=axis)

    def where(self, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        shape = broadcast(broadcast(condition.known, a.known), b.known)
        return self.emit("Where", condition, a, b, dtype=a.dtype, shape=shape)


def broadcast(a: Dims | None, b: Dims | None) -> Dims | None:
    """The shape two broadcast to; a varying dimension wins over 1, and a size above 1 over a varying one."""
    if a is None or b is None:
        return None
    size = max(len(a), len(b))
    padded = zip((1,) * (size - len(a)) + a, (1,) * (size - len(b)) + b, strict=True)
    return tuple(y if x == 1 else x if y == 1 or y is None else y for x, y in padded)


def _is_one(value: Tensor | Scalar) -> bool:
    return not isinstance(value, Tensor) and value == 1
