"""Activation functions with attributes: dy times the slope."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor

Slope = Callable[[Node, Tensor, Tensor], Tensor]


def _between(x: Tensor, low: float, high: float) -> Tensor:
    return ((x > low) & (x < high)).cast(x.dtype)


def _positive(x: Tensor) -> Tensor:
    return (x > 0).cast(x.dtype)


def _leaky(n: Node, x: Tensor, y: Tensor) -> Tensor:
    alpha = n.number("alpha", 0.01)
    return _positive(x) * (1 - alpha) + alpha


def _elu(n: Node, x: Tensor, y: Tensor) -> Tensor:
    """y + alpha = alpha e^x where x < 0."""
    alpha = n.number("alpha", 1.0)
    one, zero = (n.tape.scalar(v, x.dtype) for v in (1.0, 0.0))
    return n.tape.where(x > zero, one, y + alpha)


def _selu(n: Node, x: Tensor, y: Tensor) -> Tensor:
    alpha, gamma = n.attr("alpha", 1.67326319217681884765625), n.attr("gamma", 1.05070102214813232421875)
    return n.tape.where(x > 0, n.tape.scalar(gamma, x.dtype), y + alpha * gamma)


def _celu(n: Node, x: Tensor, y: Tensor) -> Tensor:
    alpha = n.number("alpha", 1.0)
    return n.tape.where(x > 0, n.tape.scalar(1.0, x.dtype), (x / alpha).op("Exp"))


def _hard_sigmoid(n: Node, x: Tensor, y: Tensor) -> Tensor:
    return _between(y, 0.0, 1.0) * n.number("alpha", 0.2)


def _hard_swish_forward(n: Node) -> None:
    """x h with h = clip(x/6 + 1/2, 0, 1), which the backward pass uses too."""
    n.saved["gate"] = n.input(0).op("HardSigmoid", alpha=1 / 6, beta=0.5)
    n.emit_forward(n.input(0) * n.saved["gate"])


def _swish(n: Node, x: Tensor, y: Tensor) -> Tensor:
    """x s with s = sigmoid(alpha x): s + alpha y (1 - s)."""
    alpha = n.number("alpha", 1.0)
    s = (x * alpha).op("Sigmoid")
    return s + y * (1 - s) * alpha


def _mish(n: Node, x: Tensor, y: Tensor) -> Tensor:
    """x t with t = tanh(softplus(x)): t + x (1 - t^2) sigmoid(x)."""
    t = x.op("Softplus").op("Tanh")
    return t + x * (1 - t * t) * x.op("Sigmoid")


def _gelu(n: Node, x: Tensor, y: Tensor) -> Tensor:
    if n.attr("approximate", "none") == "tanh":
        k, cubic = math.sqrt(2 / math.pi), 0.044715
        square = x * x
        t = (x * k * (square * cubic + 1)).op("Tanh")
        inner = (square * (3 * cubic) + 1) * k
        return (t + 1) * 0.5 + x * 0.5 * (1 - t * t) * inner
    scaled = n.saved["scaled"]
    density = (-0.5 * math.log(2 * math.pi) - scaled * scaled).op("Exp")
    return n.saved["cumulative"] + x * density


def _gelu_forward(n: Node) -> None:
    """x times the normal distribution's cumulative function, which the backward pass uses too."""
    if n.attr("approximate", "none") == "tanh":
        n.tape.nodes.append(n.proto)
        return
    x = n.input(0)
    scaled = x * math.sqrt(0.5)
    error = scaled.op("Erf")
    # Affine in one pass, where the kernel has the dtype; an error function never meets the bounds.
    cumulative = error.op("HardSigmoid", alpha=0.5, beta=0.5) if x.dtype == "float32" else (error + 1) * 0.5
    n.saved.update(scaled=scaled, cumulative=cumulative)
    n.emit_forward(x * cumulative)


def _shrink(n: Node, x: Tensor, y: Tensor) -> Tensor:
    return (x.op("Abs") > n.number("lambd", 0.5)).cast(x.dtype)


SLOPES: dict[str, Slope] = {
    "Sigmoid": lambda n, x, y: y * (1 - y),
    "Tanh": lambda n, x, y: 1 - y * y,
    "Erf": lambda n, x, y: (-(x * x)).op("Exp") * (2 / math.sqrt(math.pi)),
    "Softplus": lambda n, x, y: x.op("Sigmoid"),
    "Softsign": lambda n, x, y: (1 - y.op("Abs")) ** 2,
    "LeakyRelu": _leaky,
    "ThresholdedRelu": lambda n, x, y: (x > n.number("alpha", 1.0)).cast(x.dtype),
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "HardSigmoid": _hard_sigmoid,
    "Swish": _swish,
    "Mish": _mish,
    "Shrink": _shrink,
}


@rule(*SLOPES)
def _(n: Node) -> Grads:
    return [n.dy * SLOPES[n.op](n, n.input(0), n.output())]


@rule("Gelu", forward=_gelu_forward)
def _(n: Node) -> Grads:
    return [n.dy * _gelu(n, n.input(0), n.output())]


@rule("HardSwish", forward=_hard_swish_forward)
def _(n: Node) -> Grads:
    """h + x/6 between the bounds, h beyond them."""
    x = n.input(0)
    return [n.dy * (n.saved["gate"] + (x * (1 / 6)).mask(x.op("Abs") < 3))]


@rule("Relu")
def _(n: Node) -> Grads:
    return [n.dy if n.dy.name in n.tape.gated else n.dy.mask(n.output() > 0)]


@rule("PRelu")
def _(n: Node) -> Grads:
    x, slope = n.input(0), n.input(1)
    positive = _positive(x)
    negative = 1 - positive
    dslope = (n.dy * x * negative).told(x.known).summed_to(slope) if n.wants[1] else None
    return [n.dy * (positive + slope * negative), dslope]


@rule("Softmax")
def _(n: Node) -> Grads:
    y, axis = n.output(), n.attr("axis", -1)
    weighted = n.dy * y
    return [weighted - y * weighted.sum([axis])]


@rule("LogSoftmax")
def _(n: Node) -> Grads:
    y, axis = n.output(), n.attr("axis", -1)
    return [n.dy - y.op("Exp") * n.dy.sum([axis])]
