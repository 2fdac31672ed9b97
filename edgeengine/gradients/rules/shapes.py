"""Operators that move, repeat or pick elements at positions known before any run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _(n: Node) -> Grads:
    return [n.dy.reshape_like(n.input(0)), None][: len(n.x)]


@rule("Transpose")
def _(n: Node) -> Grads:
    order = n.attr("perm") or list(range(n.input(0).rank))[::-1]
    return [n.dy.transpose([int(i) for i in np.argsort(order)])]


@rule("Expand")
def _(n: Node) -> Grads:
    return [n.dy.summed_to(n.input(0)), None]


@rule("Concat")
def _(n: Node) -> Grads:
    axis, at, grads = n.attr("axis"), 0, []
    for i in range(len(n.x)):
        (size,) = n.sizes(n.input(i), [axis])
        grads.append(n.dy.slice(axis, at, at + size) if n.wants[i] else None)
        at += size
    return grads


@rule("Split")
def _(n: Node) -> Grads:
    parts = [dy if dy is not None else n.tape.zeros_like(n.output(i)) for i, dy in enumerate(n.dys)]
    return [n.tape.concat(parts, n.attr("axis", 0)), None][: len(n.x)]


@rule("Slice")
def _(n: Node) -> Grads:
    """Zeros around dy; with a step other than 1, zeros between as well."""
    x, dy = n.input(0), n.dy
    starts, stops = n.ints(1, "starts"), n.ints(2, "ends")
    axes = n.ints(3, "axes") if n.has(3) else list(range(len(starts)))
    steps = n.ints(4, "steps") if n.has(4) else [1] * len(starts)
    low, high = [0] * x.rank, [0] * x.rank
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        if start == 0 and step == 1 and stop >= np.iinfo(np.int32).max:
            continue
        (size,) = n.sizes(x, [axis])
        taken = np.arange(size)[slice(*_bounds(start, stop, step, size))]
        if step != 1:
            dy = put_back(dy, taken, axis % x.rank, size)
        elif len(taken):
            low[axis], high[axis] = int(taken[0]), size - 1 - int(taken[-1])
    return [dy.pad(low, high), *[None] * (len(n.x) - 1)]


def _bounds(start: int, stop: int, step: int, size: int) -> tuple[int, int | None, int]:
    """ONNX's bounds as Python's: going backwards, a stop below -size takes everything."""
    return start, None if step < 0 and stop < -size else stop, step


def put_back(dy: Tensor, taken: np.ndarray, axis: int, size: int) -> Tensor:
    """The gradient of picking positions `taken` (distinct, 0 <= t < size) along an axis: one Gather from dy and a zero."""
    if not len(taken):
        raise ValueError("nothing taken")
    where = np.full(size, len(taken))
    where[taken] = np.arange(len(taken))
    before, after = [0] * dy.rank, [0] * dy.rank
    after[axis] = 1
    shape = (*dy.shape[:axis], size, *dy.shape[axis + 1 :])
    return dy.tape.emit("Gather", dy.pad(before, after), dy.tape.ints(where.tolist()), shape=shape, axis=axis)


@rule("Pad")
def _(n: Node) -> Grads:
    """Constant pads are cut off; mirrored, repeated and wrapped ones add to the elements they copied."""
    x, mode = n.input(0), n.attr("mode", "constant")
    pads = n.ints(1, "pads")
    axes = [a % x.rank for a in n.ints(3, "axes")] if n.has(3) else list(range(x.rank))
    grad = n.dy
    tail: list[Tensor | None] = [None] * (len(n.x) - 1)
    if mode == "constant":
        low, high = [0] * x.rank, [0] * x.rank
        for i, axis in enumerate(axes):
            low[axis], high[axis] = pads[i], pads[len(axes) + i]
        cuts = {}
        for a in range(x.rank):
            if low[a] > 0 or high[a] > 0:
                cuts[a] = (max(low[a], 0), -high[a] if high[a] > 0 else np.iinfo(np.int64).max, 1)
        return [grad.slices(cuts).pad([max(-v, 0) for v in low], [max(-v, 0) for v in high]), *tail]
    for i, axis in enumerate(axes):
        low_, high_ = pads[i], pads[len(axes) + i]
        if low_ or high_:
            (size,) = n.sizes(x, [axis])
            source = np.pad(np.arange(size), (max(low_, 0), max(high_, 0)), mode)
            source = source[max(-low_, 0) : len(source) - max(-high_, 0)]
            grad = add_back(grad, source, axis, size)
    return [grad, *tail]


def add_back(dy: Tensor, taken: np.ndarray, axis: int, size: int) -> Tensor:
    """As `put_back`, where positions may repeat: a product with the constant matrix that says which."""
    matrix = (taken[:, None] == np.arange(size)[None]).astype(dy.dtype)
    return along(dy, dy.tape.constant(matrix), axis)


def along(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """x @ matrix along one axis."""
    shape = (*x.shape[:axis], matrix.shape[1], *x.shape[axis + 1 :])
    order = [i for i in range(x.rank) if i != axis] + [axis]
    product = x.transpose(order) @ matrix
    return product.told(tuple(shape[i] for i in order)).transpose([order.index(i) for i in range(x.rank)]).told(shape)


@rule("Tile")
def _(n: Node) -> Grads:
    x, repeats = n.input(0), n.ints(1, "repeats")
    dims: list[int | None] = []
    for d, r in zip(x.shape, repeats, strict=True):
        dims += [r, d]
    if dims.count(None) > 1:
        raise n.refuse("with several varying sizes")
    return [n.dy.reshape(dims).sum(range(0, 2 * x.rank, 2), keep=False).told(x.known), None]


@rule("Trilu")
def _(n: Node) -> Grads:
    k = [n.input(1)] if n.has(1) else []
    return [n.tape.emit("Trilu", n.dy, *k, upper=n.attr("upper", 1)), None][: len(n.x)]


@rule("CumSum")
def _(n: Node) -> Grads:
    attributes = {"exclusive": n.attr("exclusive", 0), "reverse": 1 - n.attr("reverse", 0)}
    return [n.tape.emit("CumSum", n.dy, n.input(1), **attributes), None]


@rule("SpaceToDepth")
def _(n: Node) -> Grads:
    return [n.tape.emit("DepthToSpace", n.dy, blocksize=n.attr("blocksize"), mode="DCR")]


@rule("DepthToSpace")
def _(n: Node) -> Grads:
    b = n.attr("blocksize")
    if n.attr("mode", "DCR") == "DCR":
        return [n.tape.emit("SpaceToDepth", n.dy, blocksize=b)]
    channels, height, width = n.sizes(n.input(0), [1, 2, 3])
    blocks: Sequence[int] = [0, channels // (b * b), height, b, width, b]
    return [n.dy.reshape(blocks).transpose([0, 1, 3, 5, 2, 4]).reshape_like(n.input(0))]


@rule("ReverseSequence")
def _(n: Node) -> Grads:
    """Its own inverse."""
    attributes = {"batch_axis": n.attr("batch_axis", 1), "time_axis": n.attr("time_axis", 0)}
    return [n.tape.emit("ReverseSequence", n.dy, n.input(1), **attributes), None]
