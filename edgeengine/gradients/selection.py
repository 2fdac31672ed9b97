"""Which tensors of a model train: by role in the graph, or by name.

Exporters rename weights and fold transposes into them, so roles come from where a tensor is read, and a pattern is matched
against the names of the nodes that read a tensor too.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from edgeengine.errors import UserError, near

# Operator -> positions of its inputs that are parameters: (matrices, vectors).
_POSITIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "Conv": ((1,), (2,)),
    "ConvTranspose": ((1,), (2,)),
    "Gemm": ((0, 1), (2,)),
    "MatMul": ((0, 1), ()),
    "Einsum": ((0, 1), ()),
    "LSTM": ((1, 2), (3,)),
    "GRU": ((1, 2), (3,)),
    "RNN": ((1, 2), (3,)),
    "Gather": ((0,), ()),
    "BatchNormalization": ((), (1, 2)),
    "InstanceNormalization": ((), (1, 2)),
    "GroupNormalization": ((), (1, 2)),
    "LayerNormalization": ((), (1, 2)),
    "RMSNormalization": ((), (1,)),
    "PRelu": ((), (1,)),
    "Add": ((), (0, 1)),
    "Sub": ((), (0, 1)),
    "Mul": ((), (0, 1)),
    "Div": ((), (1,)),
}
_REARRANGING = frozenset({"Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Concat", "Split", "Expand"})
_SCALARS = frozenset({"Add", "Sub", "Mul", "Div"})  # where a single number is a constant of a formula, not a weight
_LINEAR = {"Gemm": (1,), "MatMul": (1,)}
_LORA = re.compile(r"lora:rank=(\d+)(?:,?alpha=([\d.]+))?$")


@dataclass(frozen=True)
class Parameter:
    """A float32 initializer that could train. `layer` counts the matrices read up to it; `readers` name the nodes."""

    name: str
    shape: tuple[int, ...]
    matrix: bool
    layer: int
    readers: tuple[str, ...]
    linear: bool


@dataclass(frozen=True)
class Selection:
    """`direct` train themselves; `lora` maps a frozen matrix to the rank of its adapter."""

    direct: tuple[str, ...]
    lora: dict[str, int]
    alpha: float | None


def parameters_of(graph: onnx.GraphProto, own: Mapping[str, onnx.TensorProto]) -> dict[str, Parameter]:
    """The parameters of a graph by name, in order of reading. `own` are the initializers the model came with.

    A weight may be turned, cut or joined by nodes before it is read: it counts as read where the result is.
    """
    found: dict[str, Parameter] = {}
    layer = 0
    products: set[str] = set()
    fixed = {""} | {t.name for t in graph.initializer}
    origins = {name: (name,) for name, tensor in own.items() if _trains(tensor)}
    for node in graph.node:
        matrices, vectors = _POSITIONS.get(node.op_type, ((), ()))
        if node.op_type in _REARRANGING:
            sources = tuple(dict.fromkeys(o for t in node.input for o in origins.get(t, ())))
            if sources and all(t in fixed for t in node.input):
                origins |= dict.fromkeys(node.output, sources)
                fixed |= set(node.output)
                continue
            # Joined with data, like a class token: read here.
            vectors = tuple(range(len(node.input)))
        elif all(t in fixed for t in node.input):
            fixed |= set(node.output)
        mine = [(i, o) for i, t in enumerate(node.input) if i in (*matrices, *vectors) for o in origins.get(t, ())]
        if node.op_type in ("MatMul", "Gemm", "Conv", "Einsum"):
            products.update(node.output)
        layer += any(i in matrices and t not in found for i, t in mine)
        for i, name in mine:
            tensor = own[name]
            # A number added to a product is the bias of a single output.
            if node.op_type in _SCALARS and _size(tensor) == 1 and not any(t in products for t in node.input):
                continue
            reader = node.name or node.op_type
            if name in found:
                old = found[name]
                found[name] = replace(old, readers=(*old.readers, reader), linear=False)
                continue
            linear = i in _LINEAR.get(node.op_type, ()) and len(tensor.dims) == 2
            found[name] = Parameter(name, tuple(tensor.dims), i in matrices, layer, (reader,), linear)
    return found


def _trains(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT and _size(tensor) > 0


def _size(tensor: onnx.TensorProto) -> int:
    size = 1
    for d in tensor.dims:
        size *= d
    return size


def select(parameters: Mapping[str, Parameter], train: str, what: str) -> Selection:
    """What `train` asks for: all, head, last:N, bias+norm, lora:rank=R, or a pattern of names; joined by ";" or spaces.

    Raises UserError where a part matches nothing, and where the model has nothing that could train.
    """
    if not parameters:
        raise UserError(
            f"{what}: holds no float32 weights, so nothing can train; of an int8 model keep the float one, fine-tune that and "
            "quantize it again; convert one of float16 or double to float32 first"
        )
    direct: dict[str, None] = {}
    lora: dict[str, int] = {}
    alpha = None
    for part in re.split(r"[;\s]+", train.strip()):
        match = _LORA.match(part)
        if match:
            lora |= _adapters(parameters, int(match[1]), what)
            alpha = float(match[2]) if match[2] else None
        else:
            direct |= dict.fromkeys(_named(parameters, part, what))
    return Selection(tuple(p for p in parameters if p in direct), {p: r for p, r in lora.items() if p not in direct}, alpha)


def _named(parameters: Mapping[str, Parameter], part: str, what: str) -> Sequence[str]:
    layers = max(p.layer for p in parameters.values())
    if part == "all":
        return list(parameters)
    if part == "head":
        return [p.name for p in parameters.values() if p.layer == layers]
    if part == "bias+norm":
        found = [p.name for p in parameters.values() if not p.matrix]
        if not found:
            raise UserError(f"{what}: has neither biases nor normalizations to train; choose with --train all or a pattern")
        return found
    if part.startswith("last:"):
        count = part.removeprefix("last:")
        if not count.isdigit() or int(count) < 1:
            raise UserError(f"--train {part}: give a number of layers, like last:2")
        return [p.name for p in parameters.values() if p.layer > layers - int(count)]
    found = [p.name for p in parameters.values() if any(fnmatch.fnmatchcase(n, part) for n in (p.name, *p.readers))]
    if not found:
        names = dict.fromkeys(n for p in parameters.values() for n in (p.name, *p.readers))
        raise UserError(f"{what}: --train {part!r} matches no parameter, nor a node that reads one; {near(part, names)}")
    return found


def _adapters(parameters: Mapping[str, Parameter], rank: int, what: str) -> dict[str, int]:
    fitting = {p.name: rank for p in parameters.values() if p.linear and 0 < rank < min(p.shape)}
    if not fitting:
        raise UserError(
            f"{what}: no matrix that a lora of rank {rank} would fit: it needs MatMul or Gemm weights above that rank"
        )
    return fitting
