"""The cases: every operator with a gradient rule, over shapes, attributes, broadcasts and source opsets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.gradients.cases import Array, Case, normal

# Quantizers pass gradients straight through, which is not what differences of the forward pass say; see test_differentiate.py.
WITHOUT_CASE = {"QuantizeLinear", "DequantizeLinear"}
T = Any
X = normal(2, 3, 4)
POSITIVE = np.abs(X) + 0.5
INSIDE = np.tanh(X) * 0.9


def one(
    op: str,
    inputs: dict[str, Array],
    torch: Callable[..., Any] | None,
    attributes: dict[str, Any] | None = None,
    name: str = "",
    **more: Any,
) -> Case:
    """A case of one node that reads all inputs, then all constants, in order."""
    names = [*inputs, *more.get("constants", {})]
    order = more.pop("order", names)
    return Case(name or op, [(op, order, ["Y"], attributes or {})], inputs, torch, **more)


def unary() -> Iterator[Case]:
    rows: dict[str, tuple[Callable[[T], T], Array]] = {
        "Identity": (lambda x: x, X),
        "Neg": (torch.neg, X),
        "Exp": (torch.exp, X),
        "Log": (torch.log, POSITIVE),
        "Sqrt": (torch.sqrt, POSITIVE),
        "Reciprocal": (torch.reciprocal, POSITIVE),
        "Abs": (torch.abs, X),
        "Sin": (torch.sin, X),
        "Cos": (torch.cos, X),
        "Tan": (torch.tan, INSIDE),
        "Asin": (torch.asin, INSIDE),
        "Acos": (torch.acos, INSIDE),
        "Atan": (torch.atan, X),
        "Sinh": (torch.sinh, X),
        "Cosh": (torch.cosh, X),
        "Asinh": (torch.asinh, X),
        "Acosh": (torch.acosh, POSITIVE + 1),
        "Atanh": (torch.atanh, INSIDE),
        "Relu": (torch.relu, X),
        "Sigmoid": (torch.sigmoid, X),
        "Tanh": (torch.tanh, X),
        "Erf": (torch.erf, X),
        "Softplus": (F.softplus, X),
        "Softsign": (F.softsign, X),
        "HardSwish": (F.hardswish, X * 3),
        "Mish": (F.mish, X),
    }
    for op, (f, x) in rows.items():
        yield one(op, {"X": x}, f)
        if op not in ("HardSwish", "Mish"):
            yield one(op, {"X": x}, f, name=f"{op} opset 11", opset=11)
            yield one(op, {"X": x.reshape(-1)[:5]}, f, name=f"{op} vector opset 17", opset=17)
    with_attributes: list[tuple[str, dict[str, Any], Callable[[T], T]]] = [
        ("LeakyRelu", {}, lambda x: F.leaky_relu(x, 0.01)),
        ("LeakyRelu", {"alpha": 0.3}, lambda x: F.leaky_relu(x, 0.3)),
        ("Elu", {}, F.elu),
        ("Elu", {"alpha": 0.7}, lambda x: F.elu(x, 0.7)),
        ("Selu", {}, F.selu),
        ("Celu", {"alpha": 0.8}, lambda x: F.celu(x, 0.8)),
        ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, F.hardsigmoid),
        ("HardSigmoid", {}, lambda x: torch.clamp(0.2 * x + 0.5, 0, 1)),
        ("ThresholdedRelu", {"alpha": 0.5}, lambda x: F.threshold(x, 0.5, 0.0)),
        ("Shrink", {"lambd": 0.6, "bias": 0.0}, lambda x: F.hardshrink(x, 0.6)),
    ]
    for op, attributes, f in with_attributes:
        yield one(op, {"X": X * 2}, f, attributes, name=f"{op} {attributes}")
        yield one(op, {"X": X * 2}, f, attributes, name=f"{op} {attributes} opset 12", opset=12)
    for how in ("none", "tanh"):
        yield one("Gelu", {"X": X}, lambda x, how=how: F.gelu(x, approximate=how), {"approximate": how}, name=f"Gelu {how}")
    yield one("Swish", {"X": X}, lambda x: x * torch.sigmoid(1.5 * x), {"alpha": 1.5}, opset=24)
    for opset in (11, 13, 18, 21):
        yield one(
            "Clip",
            {"X": X * 3},
            lambda x: torch.clamp(x, -1, 2),
            name=f"Clip opset {opset}",
            opset=opset,
            constants={"lo": np.float32(-1), "hi": np.float32(2)},
        )
    yield one(
        "Clip",
        {"X": X * 3},
        lambda x: torch.clamp(x, max=1.5),
        order=["X", "", "hi"],
        constants={"hi": np.float32(1.5)},
        name="Clip above",
    )
    yield one("Clip", {"X": X * 3}, lambda x: torch.clamp(x, min=-0.5), constants={"lo": np.float32(-0.5)}, name="Clip below")
    for slope, shape in (((3, 1), "channel"), ((1,), "one"), ((2, 3, 4), "all")):
        yield one(
            "PRelu", {"X": X, "S": normal(*slope, seed=5)}, lambda x, s: torch.where(x > 0, x, s * x), name=f"PRelu {shape}"
        )


def broadcasting() -> Iterator[Case]:
    pairs = [
        ((2, 3, 4), (2, 3, 4)),
        ((2, 3, 4), (4,)),
        ((3, 1), (2, 3, 4)),
        ((1, 3, 1), (2, 1, 4)),
        ((2, 3), ()),
        ((), (2, 3)),
        ((4,), (4,)),
        ((1, 1), (2, 3, 4)),
        ((2, 3, 4), (1, 4)),
        ((2, 1, 3, 1), (4, 1, 5)),
    ]
    ops: dict[str, Callable[[T, T], T]] = {
        "Add": torch.add,
        "Sub": torch.sub,
        "Mul": torch.mul,
        "Div": torch.div,
        "Max": torch.maximum,
        "Min": torch.minimum,
    }
    for (op, f), (k, (a, b)) in itertools.product(ops.items(), enumerate(pairs)):
        second = normal(*b, seed=1)
        second = np.asarray(np.sign(second) * (np.abs(second) + 0.5), np.float32)
        yield one(op, {"A": normal(*a), "B": second}, f, name=f"{op} {a} {b}", opset=(20, 11, 13, 14, 17, 21)[k % 6])
    for a, b in pairs:
        yield one(
            "Pow",
            {"A": np.asarray(np.abs(normal(*a)) + 0.3, np.float32), "B": normal(*b, seed=2)},
            torch.pow,
            name=f"Pow {a} {b}",
        )
        condition = normal(*a, seed=4) > 0
        c = np.asarray(condition)
        yield one("Where", {"C": c, "A": normal(*b, seed=5), "B": normal(*a, seed=6)}, torch.where, name=f"Where {a} {b}")
    for power in (2.0, 3.0, 0.5, -1.0, 1.0):
        yield one("Pow", {"A": POSITIVE}, lambda x, p=power: x**p, constants={"e": np.float32(power)}, name=f"Pow {power}")
    yield one("Pow", {"A": X}, lambda x: x**2, constants={"e": np.int64(2)}, name="Pow integer exponent")
    for op, f in (
        ("Sum", lambda a, b, c: a + b + c),
        ("Mean", lambda a, b, c: (a + b + c) / 3),
        ("Max", lambda a, b, c: torch.maximum(torch.maximum(a, b), c)),
    ):
        yield one(op, {"A": normal(2, 3), "B": normal(3, seed=1), "C": normal(2, 1, seed=2)}, f, name=f"{op} of three")
    yield one("Mod", {"A": POSITIVE * 3, "B": np.float32(1.7).reshape(1)}, torch.remainder, {"fmod": 1})
    yield Case(
        "tied weights",
        [("Mul", ["A", "W"], ["B"], {}), ("Add", ["B", "W"], ["Y"], {})],
        {"A": normal(2, 3), "W": normal(3, seed=1)},
        lambda A, W: A * W + W,
    )
    yield Case("same operand twice", [("Mul", ["A", "A"], ["Y"], {})], {"A": normal(2, 3)}, lambda A: A * A)
    yield Case(
        "several consumers",
        [("Exp", ["A"], ["B"], {}), ("Sin", ["B"], ["C"], {}), ("Mul", ["B", "C"], ["D"], {}), ("Add", ["D", "B"], ["Y"], {})],
        {"A": normal(2, 3)},
        lambda A: A.exp() * A.exp().sin() + A.exp(),
    )
    yield Case(
        "cast",
        [("Cast", ["A"], ["B"], {"to": 11}), ("Exp", ["B"], ["C"], {}), ("Cast", ["C"], ["Y"], {"to": 1})],
        {"A": normal(2, 3)},
        torch.exp,
    )
    yield Case("dropout in inference", [("Dropout", ["A"], ["Y"], {})], {"A": normal(2, 3)}, lambda A: A)
    yield Case("dropout opset 12", [("Dropout", ["A"], ["Y"], {})], {"A": normal(2, 3)}, lambda A: A, opset=12)


def softmaxes() -> Iterator[Case]:
    for axis, opset in itertools.product((-1, 0, 1, 2), (20, 13)):
        yield one(
            "Softmax", {"X": X}, lambda x, a=axis: x.softmax(a), {"axis": axis}, name=f"Softmax {axis} opset {opset}", opset=opset
        )
        yield one(
            "LogSoftmax",
            {"X": X},
            lambda x, a=axis: x.log_softmax(a),
            {"axis": axis},
            name=f"LogSoftmax {axis} opset {opset}",
            opset=opset,
        )
    yield one(
        "Softmax", {"X": X}, lambda x: x.flatten(1).softmax(1).reshape(x.shape), {"axis": 1}, name="Softmax opset 11", opset=11
    )
    yield one(
        "LogSoftmax",
        {"X": X},
        lambda x: x.flatten(1).log_softmax(1).reshape(x.shape),
        {"axis": 1},
        name="LogSoftmax opset 11",
        opset=11,
    )


def products() -> Iterator[Case]:
    shapes = [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 3)),
        ((3, 4), (2, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4,)),
        ((4,), (2, 4, 5)),
        ((1, 3, 4), (2, 4, 5)),
        ((2, 2, 3, 4), (4, 2)),
    ]
    for k, (a, b) in enumerate(shapes):
        yield one(
            "MatMul", {"A": normal(*a), "B": normal(*b, seed=1)}, torch.matmul, name=f"MatMul {a} {b}", opset=(20, 11, 17)[k % 3]
        )
    for ta, tb, c in itertools.product((0, 1), (0, 1), ((5,), (3, 1), (1, 5), (3, 5), ())):
        inputs = {
            "A": normal(*((4, 3) if ta else (3, 4))),
            "B": normal(*((5, 4) if tb else (4, 5)), seed=1),
            "C": normal(*c, seed=2),
        }
        yield one(
            "Gemm",
            inputs,
            lambda a, b, c, ta=ta, tb=tb: 0.5 * (a.T if ta else a) @ (b.T if tb else b) + 2 * c,
            {"transA": ta, "transB": tb, "alpha": 0.5, "beta": 2.0},
            name=f"Gemm {ta} {tb} {c}",
            opset=13 if c else 11,
        )
    yield one("Gemm", {"A": normal(3, 4), "B": normal(4, 5, seed=1)}, torch.matmul, name="Gemm without C")
    for equation, *operands in (
        ("ij,jk->ik", (2, 3), (3, 4)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("ij->ji", (2, 3)),
        ("ij->i", (2, 3)),
        ("ij->", (2, 3)),
        ("i,j->ij", (3,), (4,)),
        ("bi,ij,bj->b", (2, 3), (3, 4), (2, 4)),
        ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
        ("ij,jk", (2, 3), (3, 4)),
        ("nct,cd->ndt", (2, 3, 4), (3, 5)),
    ):
        inputs = {f"A{i}": normal(*s, seed=i) for i, s in enumerate(operands)}
        yield one("Einsum", inputs, lambda *t, e=equation: torch.einsum(e, *t), {"equation": equation}, name=f"Einsum {equation}")


def bodies() -> Iterator[Case]:
    """Operators without a rule of their own: differentiated as their bodies in the standard."""
    q, k, v = normal(2, 2, 3, 4), normal(2, 2, 5, 4, seed=1), normal(2, 2, 5, 4, seed=2)
    yield one("Attention", {"Q": q, "K": k, "V": v}, F.scaled_dot_product_attention, opset=23)
    yield one(
        "Attention",
        {"Q": q, "K": q[:, ::-1].copy(), "V": v[:, :, :3]},
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        {"is_causal": 1},
        name="Attention causal",
        opset=23,
    )
    yield one("CastLike", {"X": X}, lambda x: x, constants={"like": np.float32(0)})
    labels = np.array([[0, 2, 1, 1], [2, 2, 0, 1]])
    yield one(
        "SoftmaxCrossEntropyLoss",
        {"X": X, "T": labels},
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        {"reduction": "none"},
    )
    yield one(
        "MeanVarianceNormalization",
        {"X": normal(2, 3, 4, 4)},
        lambda x: F.instance_norm(x, eps=1e-18),
        {"axes": [2, 3]},
        name="MVN of planes",
        tolerance=1e-4,
    )


def all_cases() -> list[Case]:
    from tests.gradients.spatial import convolutions, normalizations, pools, recurrent, resizes
    from tests.gradients.structure import indexing, reductions, shapes

    families = (
        unary,
        broadcasting,
        softmaxes,
        products,
        convolutions,
        pools,
        normalizations,
        recurrent,
        resizes,
        shapes,
        indexing,
        reductions,
    )
    return [case for family in families for case in family()]
