"""Convolutions: gradients of the input and the bias. Those of the weight are in `conv_weight.py`."""

from __future__ import annotations

from edgeengine.gradients.rules.conv_weight import weight_gradient
from edgeengine.gradients.rules.geometry import Windows, transposed_windows, windows
from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor


@rule("Conv")
def _(n: Node) -> Grads:
    x, w, dy = n.input(0), n.input(1), n.dy
    group = n.attr("group", 1)
    win = windows(n, x, n.output(), tuple(n.sizes(w, range(2, w.rank))))
    dx = spread(dy, w, win, group) if n.wants[0] else None
    dw = weight_gradient(n, x, dy, w, win, group) if n.wants[1] else None
    return [dx, dw, *([dy.sum([0, *win.axes], keep=False)] if n.has(2) else [])]


@rule("ConvTranspose")
def _(n: Node) -> Grads:
    """The transpose of a Conv from y to x: the roles of input and result gradient change places."""
    x, w, dy = n.input(0), n.input(1), n.dy
    group = n.attr("group", 1)
    win = transposed_windows(n, x, n.output(), tuple(n.sizes(w, range(2, w.rank))))
    dx = dw = None
    if n.wants[0]:
        used = dy.slices({a: (0, win.size[a - 2] + min(r, 0), 1) for a, r in zip(win.axes, win.reach, strict=True) if r < 0})
        pads = [*win.low, *(max(r, 0) for r in win.reach)]
        dx = n.tape.emit("Conv", used, w, strides=win.stride, dilations=win.dilation, pads=pads, group=group)
    if n.wants[1]:
        dw = weight_gradient(n, dy, x, w, win, group)
    return [dx, dw, *([dy.sum([0, *win.axes], keep=False)] if n.has(2) else [])]


def spread(dy: Tensor, w: Tensor, win: Windows, group: int = 1) -> Tensor:
    """Every window's contribution added where it was read: ConvTranspose to exactly the input's size.

    A 1x1 kernel is a Conv with the transposed weight.
    """
    if win.is_pointwise and group == 1:
        return dy.tape.emit("Conv", dy, w.transpose([1, 0, *win.axes]))
    # Input that no window reads is output padding; where windows read beyond the given pads, these grow.
    low, high, extra = list(win.low), [max(r, 0) for r in win.reach], [max(-r, 0) for r in win.reach]
    end: list[int] = []
    for i in range(win.rank):
        # ONNX Runtime wants output padding below the stride or dilation: what is beyond is padded afterwards.
        limit = max(win.stride[i], win.dilation[i]) - 1
        end.append(max(extra[i] - limit, 0))
        extra[i] -= end[i]
    spread_out = dy.tape.emit(
        "ConvTranspose", dy, w, strides=win.stride, dilations=win.dilation, pads=low + high, output_padding=extra, group=group
    )
    return spread_out.pad([0] * (2 + win.rank), [0, 0, *end])
