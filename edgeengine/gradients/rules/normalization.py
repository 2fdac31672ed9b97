"""Normalizations.

Of all: with x^ = (x - mean) / deviation over some axes and g = dy * scale, dx = (g - mean(g) - x^ mean(g x^)) / deviation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor


def _normalize(x: Tensor, axes: Sequence[int], epsilon: float, centred: bool = True) -> tuple[Tensor, Tensor]:
    """(x^, 1 / deviation) over `axes`."""
    if centred:
        x = x - x.mean(axes)
    inverse = 1 / ((x * x).mean(axes) + epsilon).op("Sqrt")
    return x * inverse, inverse


def _through(g: Tensor, xhat: Tensor, inverse: Tensor, axes: Sequence[int], centred: bool = True) -> Tensor:
    rest = g - g.mean(axes) if centred else g
    return (rest - xhat * (g * xhat).mean(axes)) * inverse


def _per_channel(vector: Tensor, x: Tensor) -> Tensor:
    """[C] -> [1, C, 1, …]."""
    return vector.reshape([1, -1, *[1] * (x.rank - 2)]).told((1, x.shape[1], *[1] * (x.rank - 2)))


def _layer_forward(n: Node) -> None:
    """The kernel gives mean and 1 / deviation too."""
    if n.choose("layer_norm", ("kernel", "plain"), "kernel") == "plain":
        n.tape.nodes.append(n.proto)
        return
    names = [*n.proto.output, "", ""][:3]
    n.proto.output[:] = [names[0], names[1] or f"{names[0]}/mean", names[2] or f"{names[0]}/inverse"]
    n.tape.nodes.append(n.proto)
    x = n.input(0)
    axis = n.attr("axis", -1) % x.rank
    reduced = (*x.shape[:axis], *[1] * (x.rank - axis))
    for name, output in zip(("mean", "inverse"), n.proto.output[1:], strict=True):
        n.saved[name] = Tensor(n.tape, output, "float32", reduced)


@rule("LayerNormalization", forward=_layer_forward)
def _(n: Node) -> Grads:
    x, scale = n.input(0), n.input(1)
    first = n.attr("axis", -1) % x.rank
    axes = range(first, x.rank)
    if n.saved:
        inverse = n.saved["inverse"].cast(x.dtype)
        xhat = (x - n.saved["mean"].cast(x.dtype)) * inverse
    else:
        xhat, inverse = _normalize(x, axes, n.attr("epsilon", 1e-5))
    dx = _through((n.dy * scale).told(x.known), xhat, inverse, axes) if n.wants[0] else None
    dscale = (n.dy * xhat).told(x.known).summed_to(scale) if n.wants[1] else None
    return [dx, dscale, *([n.dy.summed_to(n.input(2)) if n.wants[2] else None] if n.has(2) else [])]


@rule("RMSNormalization")
def _(n: Node) -> Grads:
    x, scale = n.input(0), n.input(1)
    axes = range(n.attr("axis", -1) % x.rank, x.rank)
    xhat, inverse = _normalize(x, axes, n.attr("epsilon", 1e-5), centred=False)
    dscale = (n.dy * xhat).told(x.known).summed_to(scale) if n.wants[1] else None
    return [_through((n.dy * scale).told(x.known), xhat, inverse, axes, centred=False), dscale]


@rule("InstanceNormalization")
def _(n: Node) -> Grads:
    x, scale = n.input(0), n.input(1)
    axes = range(2, x.rank)
    xhat, inverse = _normalize(x, axes, n.attr("epsilon", 1e-5))
    dx = _through(n.dy * _per_channel(scale, x), xhat, inverse, axes)
    spread = [0, *axes]
    return [dx, (n.dy * xhat).told(x.known).sum(spread, keep=False), n.dy.sum(spread, keep=False)]


@rule("GroupNormalization")
def _(n: Node) -> Grads:
    """Scale and bias are per channel (opset 21), or per group (opset 18)."""
    x, scale, groups = n.input(0), n.input(1), n.attr("num_groups")
    channels, *size = n.sizes(x, range(1, x.rank))
    split = [x.shape[0], groups, channels // groups, *size]
    axes = range(2, len(split))
    grouped = x.reshape([0, *split[1:]]).told(tuple(split))
    xhat, inverse = _normalize(grouped, axes, n.attr("epsilon", 1e-5))
    each = [1, groups, -1, *[1] * len(size)] if scale.shape[0] == channels else [1, groups, 1, *[1] * len(size)]
    dy = n.dy.reshape([0, *split[1:]]).told(tuple(split))
    dx = _through(dy * scale.reshape(each), xhat, inverse, axes).reshape_like(x)
    over = [0, *range(3 if scale.shape[0] == channels else 2, len(split))]
    return [dx, (dy * xhat).sum(over, keep=False).reshape_like(scale), dy.sum(over, keep=False).reshape_like(scale)]


def _batch_forward(n: Node) -> None:
    """Training form: statistics of the batch; the running ones follow as extra outputs.

    Formulations (`forms={"batch_norm": …}`): `kernel`, the operator itself, which with momentum 0 gives the batch's own
    statistics as the running ones; `plain`, elementwise operators and means, for providers without that form.

    ONNX's running variance is the population's, torch's the unbiased one: here torch's.
    """
    if not n.attr("training_mode", 0):
        n.tape.nodes.append(n.proto)
        return
    x, mean, variance = n.input(0), n.input(3), n.input(4)
    axes, momentum, epsilon = [0, *range(2, x.rank)], n.attr("momentum", 0.9), n.attr("epsilon", 1e-5)
    plain = n.choose("batch_norm", ("kernel", "plain"), "kernel") == "plain"
    normalize = _normalized_plainly if plain else _normalized_by_kernel
    batch_mean, batch_variance = normalize(n, axes, epsilon)
    count = n.tape.count(x, axes, x.dtype)
    unbiased = batch_variance * (count / (count - 1 if isinstance(count, Tensor) else max(count - 1, 1.0)))
    n.saved.update(
        running_mean=mean * momentum + batch_mean * (1 - momentum),
        running_variance=variance * momentum + unbiased * (1 - momentum),
    )


def _normalized_plainly(n: Node, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    """Emits the output; returns mean and variance of the batch per channel."""
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    mean = x.mean(axes)
    centred = x - mean
    variance = (centred * centred).mean(axes)
    inverse = 1 / (variance + epsilon).op("Sqrt")
    xhat = centred * inverse
    n.saved.update(xhat=xhat, inverse=inverse)
    n.emit_forward(xhat * _per_channel(scale, x) + _per_channel(bias, x))
    return mean.reshape([-1]).told(scale.known), variance.reshape([-1]).told(scale.known)


def _normalized_by_kernel(n: Node, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    scale = n.input(1)
    # ONNX Runtime's kernel writes the new statistics over the old, also over a graph's input: it gets copies, which momentum 0
    # makes irrelevant.
    inputs = [*(n.input(i) for i in range(3)), -n.input(3), -n.input(4)]
    y, mean, variance = n.tape.emit_many(
        "BatchNormalization", inputs, [scale.dtype] * 3, training_mode=1, momentum=0.0, epsilon=epsilon
    )
    mean, variance = mean.told(scale.known), variance.told(scale.known)
    n.saved.update(mean=mean, inverse=1 / (variance + epsilon).op("Sqrt"))
    n.emit_forward(y)
    return mean, variance


def _affine(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """scale x + shift per channel in one pass: an inference batch normalization of mean 0 and variance 1."""
    size = (scale.shape[0] or 0,)
    zero, one = (x.tape.constant(np.full(size, v, x.dtype)) for v in (0, 1))
    return x.tape.emit("BatchNormalization", x, scale, shift, zero, one, shape=x.known, epsilon=0.0)


@rule("BatchNormalization", forward=_batch_forward)
def _(n: Node) -> Grads:
    x, scale, dy = n.input(0), n.input(1), n.dy
    over = [0, *range(2, x.rank)]
    dbias = dy.sum(over, keep=False)
    if "xhat" in n.saved:
        xhat, inverse = n.saved["xhat"], n.saved["inverse"]
        dx = _through(dy * _per_channel(scale, x), xhat, inverse, over)
        return [dx, (dy * xhat).told(x.known).sum(over, keep=False), dbias, None, None]
    frozen = "inverse" not in n.saved
    mean = n.input(3) if frozen else n.saved["mean"]
    inverse = 1 / (n.input(4) + n.attr("epsilon", 1e-5)).op("Sqrt") if frozen else n.saved["inverse"]
    # sum(dy (x - mean)) = sum(dy x) - mean sum(dy): the centred input is never made.
    dscale = ((dy * x).told(x.known).sum(over, keep=False) - mean * dbias) * inverse
    through = _per_channel(scale * inverse, x)
    if frozen:
        return [dy * through, dscale, dbias, None, None]
    # mean(dy) + x^ mean(dy x^) is affine in x.
    count = n.tape.count(x, over, x.dtype)
    slope = inverse * dscale / count
    return [(dy - _affine(x, slope, dbias / count - slope * mean)) * through, dscale, dbias, None, None]


@rule("LpNormalization")
def _(n: Node) -> Grads:
    """y = x / |x|_p along an axis."""
    x, y, axis = n.input(0), n.output(), n.attr("axis", -1)
    if n.attr("p", 2) == 2:
        norm = (x * x).sum([axis]).op("Sqrt")
        return [(n.dy - y * (n.dy * y).sum([axis])) / norm]
    norm = x.op("Abs").sum([axis])
    return [(n.dy - x.op("Sign") * (n.dy * y).sum([axis])) / norm]
