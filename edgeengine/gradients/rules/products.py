"""Matrix products: MatMul, Gemm, Einsum.

A weight's gradient is one Gemm over flattened leading axes, never a batch of products that is summed afterwards.
"""

from __future__ import annotations

from edgeengine.gradients.rules.table import Grads, Node, rule
from edgeengine.gradients.tape import Tensor


@rule("MatMul")
def _(n: Node) -> Grads:
    a, b, dy = n.input(0), n.input(1), n.dy
    # A vector is a matrix of one row (left) or one column (right); its axis is missing from y.
    a2 = a.unsqueeze([0]) if a.rank == 1 else a
    b2 = b.unsqueeze([1]) if b.rank == 1 else b
    if b.rank == 1:
        dy = dy.unsqueeze([-1])
    if a.rank == 1:
        dy = dy.unsqueeze([-2])
    da = _left(dy, b2, a2) if n.wants[0] else None
    db = _right(dy, a2, b2) if n.wants[1] else None
    return [g if g is None else g.squeeze(axes).told(x.known) for g, x, axes in ((da, a, _gone(a, 0)), (db, b, _gone(b, 1)))]


def _gone(x: Tensor, axis: int) -> list[int]:
    return [axis] if x.rank == 1 else []


def _left(dy: Tensor, b: Tensor, a: Tensor) -> Tensor:
    product = dy @ b.swap_last()
    return product.told((*dy.shape[:-1], a.shape[-1])).summed_to(a)


def _right(dy: Tensor, a: Tensor, b: Tensor) -> Tensor:
    columns, rows = dy.shape[-1], a.shape[-1]
    if b.rank == 2 and a.rank >= 2 and columns is not None and rows is not None:
        return transposed_product(a.reshape([-1, rows]), dy.reshape([-1, columns])).told(b.known)
    product = a.swap_last() @ dy
    return product.told((*dy.shape[:-2], a.shape[-1], dy.shape[-1])).summed_to(b)


def transposed_product(a: Tensor, b: Tensor) -> Tensor:
    """a^T b of two matrices."""
    return a.tape.emit("Gemm", a, b, transA=1)


@rule("Gemm")
def _(n: Node) -> Grads:
    a, b, dy, gemm = n.input(0), n.input(1), n.dy, n.tape.emit
    ta, tb = n.attr("transA", 0), n.attr("transB", 0)
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    # Whatever is transposed in the product is so in its gradient, and the factors change places.
    factors, turned = ((b, dy), (tb, 1)) if ta else ((dy, b), (0, 1 - tb))
    da = gemm("Gemm", *factors, transA=turned[0], transB=turned[1], alpha=alpha)
    factors, turned = ((dy, a), (1, ta)) if tb else ((a, dy), (1 - ta, 0))
    db = gemm("Gemm", *factors, transA=turned[0], transB=turned[1], alpha=alpha)
    if not n.has(2):
        return [da, db]
    return [da, db, dy.summed_to(n.input(2)) * beta if n.wants[2] else None]


@rule("Einsum")
def _(n: Node) -> Grads:
    """The gradient of an operand is the product of dy and the other operands, its own subscripts the result's."""
    operands, result = _subscripts(n)
    grads: list[Tensor | None] = []
    for i, mine in enumerate(operands):
        if not n.wants[i]:
            grads.append(None)
            continue
        others = [(s, n.input(j)) for j, s in enumerate(operands) if j != i]
        present = set(result).union(*(s for s, _ in others))
        kept = "".join(c for c in mine if c in present)
        equation = ",".join([result, *(s for s, _ in others)]) + "->" + kept
        grad = n.tape.emit("Einsum", n.dy, *(t for _, t in others), equation=equation)
        # A subscript that only this operand has was summed over: its gradient is the same all along it.
        alone = [k for k, c in enumerate(mine) if c not in present]
        grads.append(grad.unsqueeze(alone).expand_like(n.input(i)) if alone else grad)
    return grads


def _subscripts(n: Node) -> tuple[list[str], str]:
    """Subscripts per operand and of the result, "..." spelt out in capitals that the equation leaves free."""
    text = n.attr("equation").replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if not arrow:
        letters = sorted(set(left) - {",", "."})
        right = ("..." if "..." in left else "") + "".join(c for c in letters if left.count(c) == 1)
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    hidden = max(n.input(i).rank - len(p.replace("...", "")) if "..." in p else 0 for i, p in enumerate(parts))
    spelt = []
    for i, p in enumerate(parts):
        size = n.input(i).rank - len(p.replace("...", ""))
        spelt.append(p.replace("...", "".join(free[hidden - size : hidden])))
    result = right.replace("...", "".join(free[:hidden]))
    sizes: dict[str, set[int | None]] = {}
    for i, p in enumerate(spelt):
        if len(set(p)) < len(p):
            raise n.refuse("that takes a diagonal")
        for c, d in zip(p, n.input(i).shape, strict=True):
            sizes.setdefault(c, set()).add(d)
    if any(len(s) > 1 for s in sizes.values()):
        raise n.refuse("that broadcasts a subscript")
    return spelt, result
