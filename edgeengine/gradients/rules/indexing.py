"""Operators that pick or place elements at positions given as a tensor. Gradients of an element picked twice add."""

from __future__ import annotations

import numpy as np

from edgeengine.gradients.rules.shapes import put_back
from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor


@rule("Gather")
def _(n: Node) -> Grads:
    x, index, dy = n.input(0), n.input(1), n.dy
    axis, k = n.attr("axis", 0) % x.rank, index.rank
    size, known = x.shape[axis], n.value(1)
    if known is not None and size is not None and known.size and len(set((known % size).ravel().tolist())) == known.size:
        flat = (known % size).reshape(-1)
        shape = (*x.shape[:axis], len(flat), *x.shape[axis + 1 :])
        picked = dy.unsqueeze([axis]) if k == 0 else dy if k == 1 else _flattened(dy, axis, k)
        return [put_back(picked.told(shape), flat, axis, size), None]
    if n.choose("gather", ("scatter", *(["one_hot"] if not axis and None not in x.shape else [])), "scatter") == "one_hot":
        return [_by_one_hot(n, x, index, dy, axis), None]
    # The indexed axis first, in x and in dy: then ScatterND adds whole slices.
    order = [axis, *(i for i in range(x.rank) if i != axis)]
    taken = dy.transpose([*range(axis, axis + k), *range(axis), *range(axis + k, dy.rank)])
    zeros = n.tape.zeros_like(x) if axis == 0 else n.tape.zeros_like(x).transpose(order)
    summed = n.tape.emit("ScatterND", zeros, index.unsqueeze([-1]), taken, reduction="add")
    return [summed.told(tuple(x.shape[i] for i in order)).transpose([order.index(i) for i in range(x.rank)]), None]


def _flattened(dy: Tensor, axis: int, k: int) -> Tensor:
    """The k axes of the index as one."""
    dims = [*dy.shape[:axis], -1, *dy.shape[axis + k :]]
    if dims.count(None) == 0:
        return dy.reshape(dims)
    # A varying size before the index stays where it is (0); one after it takes what is left.
    sizes = dy.shape[axis : axis + k]
    total = int(np.prod([d for d in sizes if d is not None]))
    return dy.reshape([0 if d is None and i < axis else total if i == axis else d for i, d in enumerate(dims)])


def _by_one_hot(n: Node, x: Tensor, index: Tensor, dy: Tensor, axis: int) -> Tensor:
    """A product with the one-hot matrix of the indices: slow, for providers without ScatterND."""
    values = n.tape.constant(np.array([0, 1], x.dtype))
    hot = n.tape.emit("OneHot", index.reshape([-1]), n.tape.ints(x.shape[:1]), values, dtype=x.dtype, axis=0)  # type: ignore[arg-type]
    rows = int(np.prod(x.shape[1:], dtype=np.int64))  # type: ignore[arg-type]
    return (hot @ dy.reshape([-1, rows])).reshape_like(x)


@rule("GatherElements")
def _(n: Node) -> Grads:
    x, index = n.input(0), n.input(1)
    return [_add_elements(n, n.tape.zeros_like(x), index, n.dy), None]


def _add_elements(n: Node, onto: Tensor, index: Tensor, dy: Tensor) -> Tensor:
    return n.tape.emit("ScatterElements", onto, index, dy, shape=onto.known, axis=n.attr("axis", 0), reduction="add")


@rule("ScatterElements")
def _(n: Node) -> Grads:
    index, updates, reduction = n.input(1), n.input(2), n.attr("reduction", "none")
    if reduction not in ("none", "add"):
        raise n.refuse(f"with reduction {reduction!r}")
    axis = n.attr("axis", 0)
    kept = n.dy
    if reduction == "none":
        kept = n.tape.emit("ScatterElements", n.dy, index, n.tape.zeros_like(updates), axis=axis)
    return [kept, None, n.tape.emit("GatherElements", n.dy, index, axis=axis)]


@rule("GatherND")
def _(n: Node) -> Grads:
    x, index, dy, tape = n.input(0), n.input(1), n.dy, n.tape
    batch = n.attr("batch_dims", 0)
    if not batch:
        return [tape.emit("ScatterND", tape.zeros_like(x), index, dy, reduction="add"), None]
    # One batch axis, whose number leads every index.
    depth = n.sizes(index, [-1])[0]
    picks = index.shape[batch:-1]
    if None in x.shape[batch:] or None in picks:
        raise n.refuse("with varying sizes behind the batch axes")
    count = int(np.prod([d for d in picks if d is not None], dtype=np.int64))
    inner = index.reshape([-1, count, depth])
    numbers = _numbers(inner).reshape([-1, 1, 1])
    shape = tape.concat([tape.emit("Shape", inner, dtype="int64", end=2), tape.ints([1])], axis=0)
    full = tape.concat([tape.emit("Expand", numbers, shape), inner], axis=-1)
    flat = tape.zeros_like(x).reshape([-1, *x.shape[batch:]])
    slices = x.shape[batch + depth :]
    grads = dy.reshape([-1, count, *slices])
    return [tape.emit("ScatterND", flat, full, grads, reduction="add").reshape_like(x), None]


def _numbers(x: Tensor) -> Tensor:
    """0, 1, … along the first axis."""
    tape = x.tape
    size = tape.emit("Squeeze", tape.emit("Shape", x, dtype="int64", start=0, end=1))
    return tape.emit("Range", tape.scalar(0, "int64"), size, tape.scalar(1, "int64"))


@rule("ScatterND")
def _(n: Node) -> Grads:
    index, updates, reduction = n.input(1), n.input(2), n.attr("reduction", "none")
    if reduction not in ("none", "add"):
        raise n.refuse(f"with reduction {reduction!r}")
    kept = n.dy if reduction == "add" else n.tape.emit("ScatterND", n.dy, index, n.tape.zeros_like(updates))
    return [kept, None, n.tape.emit("GatherND", n.dy, index)]


def _top_forward(n: Node) -> None:
    """TopK's second output says where the values were."""
    if len(n.proto.output) < 2 or not n.proto.output[1]:
        n.proto.output[:] = [n.proto.output[0], f"{n.proto.output[0]}/positions"]
    n.tape.nodes.append(n.proto)
    n.saved["positions"] = Tensor(n.tape, n.proto.output[1], "int64", n.output().known)


@rule("TopK", forward=_top_forward)
def _(n: Node) -> Grads:
    x = n.input(0)
    zeros, axis = n.tape.zeros_like(x), n.attr("axis", -1)
    return [n.tape.emit("ScatterElements", zeros, n.saved["positions"], n.dy, axis=axis), None]
