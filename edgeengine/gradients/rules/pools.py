"""Pooling."""

from __future__ import annotations

import math

import numpy as np

from edgeengine.gradients.rules.conv import spread
from edgeengine.gradients.rules.geometry import Windows, windows
from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor


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
    (channels,) = n.sizes(x, [1])
    ones = n.tape.constant(np.ones((channels, 1, *win.kernel), x.dtype))
    hit = x.equal(_repeat(n.output(), ones, win)).told(x.known).cast(x.dtype)
    if n.made_by[0] != "Relu":
        # Equal inputs share the gradient. After a ReLU they are zeros, whose gradient ends there.
        dy = dy / n.tape.emit("Conv", hit, ones, strides=win.stride, group=channels)
    return [hit * _repeat(dy, ones, win)]


def _repeat(y: Tensor, ones: Tensor, win: Windows) -> Tensor:
    return y.tape.emit("ConvTranspose", y, ones, strides=win.stride, group=ones.shape[0])


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
