"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgeengine.gradients.rules.conv import spread
from edgeengine.gradients.rules.geometry import Windows, windows
from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor

# Rows of a repeating matrix product: longer ones multiply more zeros, shorter ones make more rows. Measured.
_SHORT_ROW = 8


def _window(n: Node) -> Windows:
    return windows(n, n.input(0), n.output(), tuple(n.attr("kernel_shape")))


def _max_forward(n: Node) -> None:
    """Ask the kernel for the positions of the maxima, unless windows tile the input: that output costs time."""
    if _window(n).is_tiling:
        n.tape.nodes.append(n.proto)
        return
    if len(n.proto.output) < 2 or not n.proto.output[1]:
        n.proto.output[:] = [n.proto.output[0], f"{n.proto.output[0]}/positions"]
    n.tape.nodes.append(n.proto)
    n.saved["positions"] = Tensor(n.tape, n.proto.output[1], "int64", n.output().known)


@rule("MaxPool", forward=_max_forward)
def _(n: Node) -> Grads:
    x, dy, win = n.input(0), n.dy, _window(n)
    if "positions" in n.saved:
        if n.attr("storage_order", 0):
            raise n.refuse("with column-major storage_order")
        return [_scatter(n, x, dy)]
    # Tiling windows: the maximum and its gradient are laid over their windows, and go where the input equals it.
    hit = x.equal(_repeat(n, n.output(), win)).told(x.known).cast(x.dtype)
    if n.made_by[0] == "Relu":
        # Equal maxima are zeros here, whose gradient ends in the ReLU: it is dropped before it is repeated.
        dx = hit * _repeat(n, dy.mask(n.output() > 0), win)
        n.tape.gated.add(dx.name)
        return [dx]
    # Equal inputs share the gradient.
    (channels,) = n.sizes(x, [1])
    ones = n.tape.constant(np.ones((channels, 1, *win.kernel), x.dtype))
    dy = dy / n.tape.emit("Conv", hit, ones, strides=win.stride, group=channels)
    return [hit * _repeat(n, dy, win)]


def _repeat(n: Node, y: Tensor, win: Windows) -> Tensor:
    """Each element over its window, in one of several equal formulations (`forms={"repeat": …}`)."""
    known = [f for f in REPEATS if f != "matmul" or win.rank == 1]
    chosen = n.choose("repeat", known, {1: "matmul", 2: "resize"}.get(win.rank, "spread"))
    return REPEATS[chosen](y, win, n.sizes(n.input(0), [1])[0]).told(n.input(0).known)


def _by_resize(y: Tensor, win: Windows, channels: int) -> Tensor:
    scales = y.tape.constant(np.array([1, 1, *win.kernel], np.float32))
    return y.tape.emit(
        "Resize", y, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def _by_matmul(y: Tensor, win: Windows, channels: int) -> Tensor:
    """One axis: short rows times a constant matrix of ones and zeros."""
    length = win.out[0]
    row = max(d for d in range(1, _SHORT_ROW + 1) if length % d == 0)
    ones = y.tape.constant(np.repeat(np.eye(row, dtype=y.dtype), win.kernel[0], axis=1))
    return (y.reshape([-1, row]) @ ones).reshape([-1, channels, length * win.kernel[0]])


def _by_spread(y: Tensor, win: Windows, channels: int) -> Tensor:
    ones = y.tape.constant(np.ones((channels, 1, *win.kernel), y.dtype))
    return y.tape.emit("ConvTranspose", y, ones, strides=win.stride, group=channels)


REPEATS: dict[str, Callable[[Tensor, Windows, int], Tensor]] = {
    "resize": _by_resize,
    "matmul": _by_matmul,
    "spread": _by_spread,
}


def _scatter(n: Node, x: Tensor, dy: Tensor) -> Tensor:
    tape = n.tape
    size = (
        tape.emit("ReduceProd", tape.shape_of(x), keepdims=1)
        if None in x.shape
        else tape.ints([math.prod(d or 0 for d in x.shape)])
    )
    flat = tape.emit("Expand", tape.constant(np.zeros(1, x.dtype)), size)
    positions = n.saved["positions"].reshape([-1])
    return tape.emit("ScatterElements", flat, positions, dy.reshape([-1]), axis=0, reduction="add").reshape_like(x)


@rule("AveragePool")
def _(n: Node) -> Grads:
    """dy over the number of elements averaged, added to every element of the window."""
    x, win = n.input(0), _window(n)
    (channels,) = n.sizes(x, [1])
    share = n.tape.constant((1 / _counts(n, win)).astype(x.dtype)[None, None])
    ones = n.tape.constant(np.ones((channels, 1, *win.kernel), x.dtype))
    return [spread(n.dy * share, ones, win, group=channels)]


def _counts(n: Node, win: Windows) -> np.ndarray:
    """Elements averaged per position: of the window, those within the input (and the pads, with count_include_pad)."""
    counted = np.ones(win.out)
    padding = n.attr("count_include_pad", 0)
    rows = zip(win.size, win.out, win.kernel, win.stride, win.dilation, win.low, win.high, strict=True)
    for axis, (size, out, kernel, stride, dilation, low, high) in enumerate(rows):
        at = np.arange(out)[:, None] * stride - low + np.arange(kernel)[None] * dilation
        first, last = (-low, size + high) if padding else (0, size)
        inside = ((at >= first) & (at < last)).sum(1)
        counted = counted * inside.reshape([-1 if i == axis else 1 for i in range(win.rank)])
    return counted


@rule("GlobalAveragePool")
def _(n: Node) -> Grads:
    x = n.input(0)
    return [(n.dy / n.tape.count(x, range(2, x.rank), x.dtype)).expand_like(x)]


@rule("GlobalMaxPool")
def _(n: Node) -> Grads:
    x = n.input(0)
    hit = x.equal(n.output()).told(x.known).cast(x.dtype)
    return [hit * (n.dy / hit.sum(range(2, x.rank)))]
