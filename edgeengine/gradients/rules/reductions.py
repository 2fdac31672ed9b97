"""Reductions over axes: a row each, from x, y and dy with the reduced axes kept as 1."""

from __future__ import annotations

from collections.abc import Callable

from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor


def _shared(n: Node, x: Tensor, y: Tensor, dy: Tensor, axes: list[int]) -> Tensor:
    """Equal extremes share the gradient, as in torch.amax."""
    hit = x.equal(y).told(x.known).cast(x.dtype)
    return hit * (dy / hit.sum(axes))


def _product(n: Node, x: Tensor, y: Tensor, dy: Tensor, axes: list[int]) -> Tensor:
    """The product of the others: y / x, where no x is 0; where one is, the product of the rest."""
    zero = x.equal(0.0).told(x.known).cast(x.dtype)
    zeros = zero.sum(axes)
    rest = (x + zero).told(x.known)
    others = n.tape.emit("ReduceProd", rest, n.tape.ints(axes), keepdims=1)
    # With one zero only that element has a gradient; with two, none has.
    alone = zeros.equal(1.0).cast(x.dtype) * zero + zeros.equal(0.0).cast(x.dtype)
    return dy * others / rest * alone


ROWS: dict[str, Callable[[Node, Tensor, Tensor, Tensor, list[int]], Tensor]] = {
    "ReduceSum": lambda n, x, y, dy, axes: dy,
    "ReduceMean": lambda n, x, y, dy, axes: dy / n.tape.count(x, axes, x.dtype),
    "ReduceMax": _shared,
    "ReduceMin": _shared,
    "ReduceProd": _product,
    "ReduceL1": lambda n, x, y, dy, axes: dy * x.op("Sign"),
    "ReduceL2": lambda n, x, y, dy, axes: x * (dy / y),
    "ReduceSumSquare": lambda n, x, y, dy, axes: x * (dy * 2.0),
    "ReduceLogSum": lambda n, x, y, dy, axes: dy / y.op("Exp"),
    "ReduceLogSumExp": lambda n, x, y, dy, axes: dy * (x - y).op("Exp"),
}


@rule(*ROWS)
def _(n: Node) -> Grads:
    x, y, dy = n.input(0), n.output(), n.dy
    axes = _axes(n, x)
    if not n.attr("keepdims", 1):
        y, dy = y.unsqueeze(axes), dy.unsqueeze(axes)
    grad = ROWS[n.op](n, x, y, dy, axes)
    return [grad if grad.known == x.known else grad.expand_like(x), None][: len(n.x)]


def _axes(n: Node, x: Tensor) -> list[int]:
    given = n.attr("axes") or (n.ints(1, "axes") if n.has(1) else [])
    if not given and n.attr("noop_with_empty_axes", 0):
        return []
    return [a % x.rank for a in given] or list(range(x.rank))
