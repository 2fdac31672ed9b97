"""Elementwise operators: rows of derivatives. Broadcasting is undone in one place (`_broadcasting`)."""

from __future__ import annotations

from collections.abc import Callable

from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor

# dy/dx of y = f(x), by operator, from x and y.
UNARY: dict[str, Callable[[Tensor, Tensor], Tensor | float]] = {
    "Identity": lambda x, y: 1.0,
    "Neg": lambda x, y: -1.0,
    "Exp": lambda x, y: y,
    "Log": lambda x, y: 1 / x,
    "Sqrt": lambda x, y: 0.5 / y,
    "Reciprocal": lambda x, y: -(y * y),
    "Abs": lambda x, y: x.op("Sign"),
    "Sin": lambda x, y: x.op("Cos"),
    "Cos": lambda x, y: -x.op("Sin"),
    "Tan": lambda x, y: 1 + y * y,
    "Asin": lambda x, y: 1 / (1 - x * x).op("Sqrt"),
    "Acos": lambda x, y: -(1 / (1 - x * x).op("Sqrt")),
    "Atan": lambda x, y: 1 / (1 + x * x),
    "Sinh": lambda x, y: x.op("Cosh"),
    "Cosh": lambda x, y: x.op("Sinh"),
    "Asinh": lambda x, y: 1 / (x * x + 1).op("Sqrt"),
    "Acosh": lambda x, y: 1 / (x * x - 1).op("Sqrt"),
    "Atanh": lambda x, y: 1 / (1 - x * x),
}

# Gradients of both operands, before broadcasting is undone, from dy, a, b and y.
BINARY: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Callable[[], Tensor], Callable[[], Tensor]]]] = {
    "Add": lambda dy, a, b, y: (lambda: dy, lambda: dy),
    "Sub": lambda dy, a, b, y: (lambda: dy, lambda: -dy),
    "Mul": lambda dy, a, b, y: (lambda: dy * b, lambda: dy * a),
    "Div": lambda dy, a, b, y: (lambda: dy / b, lambda: -(dy / b * y)),
}


def _unary(n: Node) -> Grads:
    slope = UNARY[n.op](n.input(0), n.output())
    if isinstance(slope, Tensor):
        return [n.dy * slope]
    return [-n.dy if slope < 0 else n.dy]


def _binary(n: Node) -> Grads:
    a, b = n.input(0), n.input(1)
    return _broadcasting(n, BINARY[n.op](n.dy, a, b, n.output()))


def _broadcasting(n: Node, makers: tuple[Callable[[], Tensor], ...]) -> Grads:
    """Each wanted gradient, summed to the shape of its input."""
    shape = n.output().shape
    wanted = zip(n.x, makers, n.wants, strict=True)
    return [make().told(shape).summed_to(x) if want and x is not None else None for x, make, want in wanted]


rule(*UNARY)(_unary)
rule(*BINARY)(_binary)


@rule("Sum", "Mean")
def _(n: Node) -> Grads:
    share = n.dy if n.op == "Sum" else n.dy / len(n.x)
    return _broadcasting(n, (lambda: share,) * len(n.x))


@rule("Max", "Min")
def _(n: Node) -> Grads:
    """Equal operands share the gradient, as in torch.maximum."""
    y = n.output()
    if len(n.x) == 1:
        return [n.dy]
    hits = [n.input(i).equal(y).told(y.known).cast(y.dtype) for i in range(len(n.x))]
    total = hits[0]
    for hit in hits[1:]:
        total = total + hit
    share = n.dy / total
    return _broadcasting(n, tuple(lambda hit=hit: share * hit for hit in hits))  # type: ignore[misc]


@rule("Pow")
def _(n: Node) -> Grads:
    x, e, y = n.input(0), n.input(1), n.output()
    value = n.value(1)
    power = float(value.reshape(())) if value is not None and value.size == 1 else None

    def base() -> Tensor:
        if power is None:
            exponent = e.cast(x.dtype)
            return n.dy * exponent * x ** (exponent - 1)
        if power == 0.5:
            return n.dy * (0.5 / y)
        return n.dy * (x ** (power - 1) if power != 2 else x) * power

    def exponent() -> Tensor:
        """x ** e log x, 0 where x is 0: its limit for e > 0."""
        tape = n.tape
        log = tape.where(x > 0, x, tape.scalar(1.0, x.dtype)).op("Log")
        return n.dy * y * log

    return _broadcasting(n, (base, exponent))


@rule("Mod")
def _(n: Node) -> Grads:
    """x - b * trunc(x / b); the quotient is constant almost everywhere."""
    x, b, y = n.input(0), n.input(1), n.output()
    return _broadcasting(n, (lambda: n.dy, lambda: -(n.dy * ((x - y) / b))))


@rule("Where")
def _(n: Node) -> Grads:
    condition, dy = n.input(0), n.dy
    zero = n.tape.scalar(0.0, dy.dtype)
    return _broadcasting(
        n,
        (
            lambda: dy,
            lambda: n.tape.where(condition, dy, zero),
            lambda: n.tape.where(condition, zero, dy),
        ),
    )


@rule("Cast")
def _(n: Node) -> Grads:
    return [n.dy.cast(n.input(0).dtype)]


@rule("Clip")
def _(n: Node) -> Grads:
    """0 on and beyond a bound, as for ReLU and ReLU6; a bound gets what it holds back."""
    x, dy = n.input(0), n.dy
    inside: Tensor | None = None
    grads: list[Tensor | None] = [None] * len(n.x)
    for i, compare in ((1, "Less"), (2, "Greater")):
        if not n.has(i):
            continue
        bound = n.input(i)
        if n.wants[i]:
            grads[i] = dy.mask(n.tape.binary(compare, x, bound)).sum(range(x.rank), keep=False).told(()).reshape_like(bound)
        within = n.tape.binary("Greater" if i == 1 else "Less", x, bound)
        inside = within if inside is None else inside & within
    grads[0] = dy if inside is None else dy.mask(inside)
    return grads


@rule("Dropout")
def _(n: Node) -> Grads:
    """In inference form only: the identity. The training form is refused when the model is read."""
    return [n.dy, None, None][: len(n.x)]
