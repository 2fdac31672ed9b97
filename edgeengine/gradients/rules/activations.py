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


def _hard_swish(n: Node, x: Tensor, y: Tensor) -> Tensor:
    """x clip(x/6 + 1/2, 0, 1)."""
    return x.op("HardSigmoid", alpha=1 / 6, beta=0.5) + _between(x, -3.0, 3.0) * x * (1 / 6)


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
    cumulative = ((x * math.sqrt(0.5)).op("Erf") + 1) * 0.5
    density = (x * x * -0.5).op("Exp") * (1 / math.sqrt(2 * math.pi))
    return cumulative + x * density


def _shrink(n: Node, x: Tensor, y: Tensor) -> Tensor:
    return (x.op("Abs") > n.number("lambd", 0.5)).cast(x.dtype)


SLOPES: dict[str, Slope] = {
    "Relu": lambda n, x, y: _positive(y),
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
    "HardSwish": _hard_swish,
    "Swish": _swish,
    "Mish": _mish,
    "Gelu": _gelu,
    "Shrink": _shrink,
}


@rule(*SLOPES)
def _(n: Node) -> Grads:
    return [n.dy * SLOPES[n.op](n, n.input(0), n.output())]


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
