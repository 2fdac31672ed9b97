"""Cases of operators that move, pick and reduce."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.gradients.cases import Case, normal
from tests.gradients.operators import X, one

FAR = 2**40


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def shapes() -> Iterator[Case]:
    for dims, opset in itertools.product(((2, 12), (-1,), (4, 3, 2), (0, -1), (0, 0, 2, 2)), (20, 12)):
        target = [X.shape[i] if d == 0 else d for i, d in enumerate(dims)]
        yield one(
            "Reshape",
            {"X": X},
            lambda x, t=target: x.reshape(t),
            constants={"s": ints(*dims)},
            name=f"Reshape {dims} {opset}",
            opset=opset,
        )
    yield one(
        "Reshape", {"X": X}, lambda x: x.reshape(x.shape[0], -1), constants={"s": ints(0, -1)}, name="Reshape batch", batch=("X",)
    )
    for axis in (0, 1, 2, -1):
        yield one(
            "Flatten",
            {"X": X},
            lambda x, a=axis: x.reshape(int(np.prod(x.shape[:a])), -1),
            {"axis": axis},
            name=f"Flatten {axis}",
        )
    for perm in itertools.permutations(range(3)):
        yield one("Transpose", {"X": X}, lambda x, p=perm: x.permute(p), {"perm": list(perm)}, name=f"Transpose {perm}")
    yield one("Transpose", {"X": X}, lambda x: x.permute(2, 1, 0), name="Transpose reversed")
    for axis, opset in itertools.product((0, 1, -1), (11, 20)):
        shape = [[2, 3], [2, 3], [2, 3]]
        for i, s in enumerate(shape):
            s[axis] = i + 1
        inputs = {f"A{i}": normal(*s, seed=i) for i, s in enumerate(shape)}
        yield one(
            "Concat", inputs, lambda *t, a=axis: torch.cat(t, a), {"axis": axis}, name=f"Concat {axis} {opset}", opset=opset
        )
    yield Case(
        "Split even",
        [("Split", ["X"], ["A", "B", "C"], {"axis": 1, "num_outputs": 3}), ("Mul", ["A", "C"], ["Y"], {})],
        {"X": normal(2, 6)},
        lambda X: X[:, :2] * X[:, 4:],
    )
    yield Case(
        "Split sizes",
        [("Split", ["X", "s"], ["A", "B"], {"axis": -1}), ("Sigmoid", ["B"], ["Y"], {})],
        {"X": normal(2, 6)},
        lambda X: X[:, 2:].sigmoid(),
        constants={"s": ints(2, 4)},
    )
    yield Case(
        "Split opset 11",
        [("Split", ["X"], ["A", "B"], {"axis": 0, "split": [1, 2]}), ("Mul", ["A", "B"], ["Y"], {})],
        {"X": normal(3, 4)},
        lambda X: X[:1] * X[1:],
        opset=11,
    )
    slices: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
        ((1, 2), (-2, FAR), (1, 2), (1, 1)),
        ((0,), (3,), (1,), (1,)),
        ((0,), (6,), (1,), (2,)),
        ((1,), (6,), (1,), (3,)),
        ((-1,), (-FAR,), (1,), (-1,)),
        ((5,), (0,), (1,), (-2,)),
        ((-3, 0), (FAR, FAR), (2, 0), (1, 1)),
        ((0, 1), (5, 4), (1, -1), (2, 2)),
    ]
    for starts, stops, axes, steps in slices:
        index: list[Any] = [slice(None)] * 3
        for s, e, a, k in zip(starts, stops, axes, steps, strict=True):
            size = (2, 6, 5)[a]
            index[a] = torch.tensor(list(range(size))[slice(s, None if k < 0 and e < -size else e, k)])

        def pick(x: Any, index: list[Any] = index) -> Any:
            for a, i in enumerate(index):
                x = x if isinstance(i, slice) else x.index_select(a, i)
            return x

        constants = {"s": ints(*starts), "e": ints(*stops), "a": ints(*axes), "k": ints(*steps)}
        yield one(
            "Slice",
            {"X": normal(2, 6, 5)},
            pick,
            constants=constants,
            name=f"Slice {starts} {stops} {axes} {steps}",
            opset=13 if steps[0] == 1 else 20,
        )
    for pads, mode, opset in itertools.product(((0, 1, 0, 2), (1, 0, 2, 1), (0, -1, 1, 2)), ("constant",), (11, 18)):
        yield one(
            "Pad",
            {"X": normal(3, 4)},
            lambda x, p=pads: F.pad(x, (p[1], p[3], p[0], p[2])),
            {"mode": mode},
            constants={"p": ints(*pads)},
            name=f"Pad {pads} {opset}",
            opset=opset,
        )
    for mode, name in (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular")):
        yield one(
            "Pad",
            {"X": normal(1, 2, 5)},
            lambda x, m=name: F.pad(x, (2, 1), mode=m),
            {"mode": mode},
            constants={"p": ints(0, 0, 2, 0, 0, 1)},
            name=f"Pad {mode}",
            opset=19,
        )
    yield one(
        "Pad",
        {"X": normal(3, 4)},
        lambda x: F.pad(x, (1, 2)),
        constants={"p": ints(1, 2), "v": np.float32(0), "a": ints(-1)},
        name="Pad of an axis",
        opset=18,
    )
    for shape in ((2, 3, 4), (3, 4), (5, 2, 3, 4), (2, 1, 4)):
        yield one(
            "Expand",
            {"X": normal(*((3, 1) if len(shape) < 4 else (2, 3, 1)))} if shape != (2, 1, 4) else {"X": normal(1, 4)},
            lambda x, s=shape: x.expand(torch.broadcast_shapes(x.shape, s)),
            constants={"s": ints(*shape)},
            name=f"Expand {shape}",
        )
    for repeats in ((2, 1, 1), (1, 3, 2), (2, 2, 2)):
        yield one("Tile", {"X": X}, lambda x, r=repeats: x.repeat(r), constants={"r": ints(*repeats)}, name=f"Tile {repeats}")
    yield one("Squeeze", {"X": normal(2, 1, 3, 1)}, lambda x: x.squeeze(1), constants={"a": ints(1)})
    yield one("Squeeze", {"X": normal(2, 1, 3, 1)}, lambda x: x.squeeze(3), {"axes": [-1]}, name="Squeeze opset 11", opset=11)
    yield one("Unsqueeze", {"X": X}, lambda x: x[:, None, :, :, None], constants={"a": ints(1, -1)})
    yield one("Unsqueeze", {"X": X}, lambda x: x[None, :, :, None], {"axes": [0, 3]}, name="Unsqueeze opset 11", opset=11)
    yield one("Trilu", {"X": normal(4, 5)}, torch.triu)
    yield one(
        "ReverseSequence",
        {"X": normal(4, 2)},
        lambda x: torch.stack([x[:, 0].flip(0), torch.cat([x[:2, 1].flip(0), x[2:, 1]])], 1),
        constants={"lengths": ints(4, 2)},
    )
    yield one(
        "Trilu", {"X": normal(4, 5)}, lambda x: torch.tril(x, 1), {"upper": 0}, constants={"k": np.int64(1)}, name="Trilu lower"
    )
    for axis, exclusive, reverse in itertools.product((0, 1), (0, 1), (0, 1)):

        def total(x: Any, a: int = axis, e: int = exclusive, r: int = reverse) -> Any:
            x = x.flip(a) if r else x
            y = x.cumsum(a) - (x if e else 0)
            return y.flip(a) if r else y

        yield one(
            "CumSum",
            {"X": normal(3, 4)},
            total,
            {"exclusive": exclusive, "reverse": reverse},
            constants={"a": np.int64(axis)},
            name=f"CumSum {axis} {exclusive} {reverse}",
            opset=14,
        )
    yield one(
        "DepthToSpace",
        {"X": normal(1, 8, 2, 3)},
        lambda x: F.pixel_shuffle(x, 2),
        {"blocksize": 2, "mode": "CRD"},
        name="DepthToSpace CRD",
    )
    yield one(
        "DepthToSpace",
        {"X": normal(1, 8, 2, 3)},
        lambda x: x.reshape(1, 2, 2, 2, 2, 3).permute(0, 3, 4, 1, 5, 2).reshape(1, 2, 4, 6),
        {"blocksize": 2},
        name="DepthToSpace DCR",
    )
    yield one(
        "SpaceToDepth",
        {"X": normal(1, 2, 4, 6)},
        lambda x: x.reshape(1, 2, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(1, 8, 2, 3),
        {"blocksize": 2},
    )
    yield Case(
        "shape arithmetic",
        [
            ("Shape", ["X"], ["s"], {}),
            ("Gather", ["s", "zero"], ["b"], {}),
            ("Concat", ["b", "rest"], ["t"], {"axis": 0}),
            ("Reshape", ["X", "t"], ["Y"], {}),
        ],
        {"X": X},
        lambda X: X.reshape(2, 12),
        constants={"zero": ints(0), "rest": ints(-1)},
        batch=("X",),
    )


def indexing() -> Iterator[Case]:
    rng = np.random.default_rng(1)
    table = normal(7, 4)
    for shape in ((5,), (2, 5), (), (2, 3, 2)):
        index = np.asarray(rng.integers(0, 7, shape), np.int64)
        yield one("Gather", {"E": table, "I": index}, lambda e, i: e[i], name=f"Gather {shape}")
        yield one("Gather", {"E": table, "I": index}, lambda e, i: e[i], name=f"Gather {shape} opset 11", opset=11)
    yield one("Gather", {"E": table, "I": ints(0, 0, -1)}, lambda e, i: e[i], name="Gather repeated and negative")
    yield one(
        "Gather", {"E": table, "I": ints(0, 0, -1) % 7}, lambda e, i: e[i], name="Gather one-hot", forms={"gather": "one_hot"}
    )
    yield one("Gather", {"X": normal(2, 5, 4), "I": ints(1, 1, 4)}, lambda x, i: x[:, i], {"axis": 1}, name="Gather axis 1")
    yield one(
        "Gather",
        {"X": normal(2, 5, 4), "I": np.array([[0, 3], [3, 3]])},
        lambda x, i: x[:, :, i],
        {"axis": -1},
        name="Gather last axis",
    )
    for pick, name in (
        (np.int64(0), "scalar"),
        (ints(2), "one"),
        (ints(4, 0, 2), "distinct"),
        (ints(-1), "last"),
        (np.array([[0, 1], [3, 2]]), "matrix"),
    ):
        yield one(
            "Gather",
            {"X": normal(2, 5, 4)},
            lambda x, p=pick: x[:, torch.tensor(p)],
            {"axis": 1},
            constants={"i": pick},
            name=f"Gather constant {name}",
            batch=("X",) if name != "matrix" else (),
        )
    index = np.array([[0, 1, 1], [2, 0, 2]])
    for axis in (0, 1):
        yield one(
            "GatherElements",
            {"X": normal(3, 3), "I": index},
            lambda x, i, a=axis: torch.gather(x, a, i),
            {"axis": axis},
            name=f"GatherElements {axis}",
        )
        yield one(
            "ScatterElements",
            {"X": normal(3, 3), "I": np.array([[0, 1, 2], [2, 0, 1]]), "U": normal(2, 3, seed=2)},
            lambda x, i, u, a=axis: x.scatter(a, i, u),
            {"axis": axis},
            name=f"ScatterElements {axis}",
        )
    yield one(
        "ScatterElements",
        {"X": normal(3, 3), "I": index, "U": normal(2, 3, seed=2)},
        lambda x, i, u: x.scatter_add(0, i, u),
        {"axis": 0, "reduction": "add"},
        name="ScatterElements add",
        opset=18,
    )
    yield one("GatherND", {"X": normal(3, 4, 2), "I": np.array([[0, 1], [0, 1], [2, 3]])}, lambda x, i: x[i[:, 0], i[:, 1]])
    yield one("GatherND", {"X": normal(3, 4), "I": np.array([[0], [2], [2]])}, lambda x, i: x[i[:, 0]], name="GatherND slices")
    yield one(
        "GatherND",
        {"X": normal(2, 4, 3), "I": np.array([[[1], [1]], [[3], [0]]])},
        lambda x, i: torch.stack([x[k, i[k, :, 0]] for k in range(2)]),
        {"batch_dims": 1},
        name="GatherND batch",
    )
    yield one(
        "ScatterND",
        {"X": normal(4, 3), "I": np.array([[0], [2]]), "U": normal(2, 3, seed=1)},
        lambda x, i, u: x.index_put((i[:, 0],), u),
    )
    yield one(
        "ScatterND",
        {"X": normal(4, 3), "I": np.array([[0], [0]]), "U": normal(2, 3, seed=1)},
        lambda x, i, u: x.index_put((i[:, 0],), u, accumulate=True),
        {"reduction": "add"},
        name="ScatterND add",
        opset=18,
    )
    for axis, largest in itertools.product((1, 0), (1, 0)):
        yield Case(
            f"TopK {axis} {largest}",
            [("TopK", ["X", "k"], ["Y", "at"], {"axis": axis, "largest": largest})],
            {"X": normal(4, 5)},
            lambda X, a=axis, g=largest: X.topk(2, a, largest=bool(g)).values,
            constants={"k": ints(2)},
            kinked=True,
        )


def reductions() -> Iterator[Case]:
    rows: dict[str, Any] = {
        "ReduceSum": lambda x, a, k: x.sum(a, keepdim=k),
        "ReduceMean": lambda x, a, k: x.mean(a, keepdim=k),
        "ReduceMax": lambda x, a, k: torch.amax(x, a, k),
        "ReduceMin": lambda x, a, k: torch.amin(x, a, k),
        "ReduceL1": lambda x, a, k: x.abs().sum(a, keepdim=k),
        "ReduceL2": lambda x, a, k: (x * x).sum(a, keepdim=k).sqrt(),
        "ReduceSumSquare": lambda x, a, k: (x * x).sum(a, keepdim=k),
        "ReduceLogSumExp": lambda x, a, k: torch.logsumexp(x, a, k),
        "ReduceLogSum": lambda x, a, k: x.sum(a, keepdim=k).log(),
    }
    for (op, f), axes, keep in itertools.product(rows.items(), ((1,), (0, 2), (0, 1, 2)), (0, 1)):
        x = np.abs(X) + 0.2 if op == "ReduceLogSum" else X
        opset = 20 if keep else (13 if op == "ReduceSum" else 11)
        call = lambda x, f=f, a=axes, k=bool(keep): f(x, a, k)  # noqa: E731
        if opset == 20 or op == "ReduceSum":
            yield one(
                op, {"X": x}, call, {"keepdims": keep}, constants={"a": ints(*axes)}, name=f"{op} {axes} {keep}", opset=opset
            )
        else:
            yield one(
                op, {"X": x}, call, {"keepdims": keep, "axes": list(axes)}, name=f"{op} {axes} {keep} opset 11", opset=opset
            )
    for axis, keep in itertools.product((0, 1, 2), (0, 1)):
        yield one(
            "ReduceProd",
            {"X": X},
            lambda x, a=axis, k=bool(keep): x.prod(a, keepdim=k),
            {"keepdims": keep},
            constants={"a": ints(axis)},
            name=f"ReduceProd {axis} {keep}",
        )
    zeros = X.copy()
    zeros[0, 0, 1] = zeros[1, 2, 0] = zeros[1, 2, 3] = 0
    yield one(
        "ReduceProd", {"X": zeros}, lambda x: x.prod(2), {"keepdims": 0}, constants={"a": ints(2)}, name="ReduceProd with zeros"
    )
    yield one(
        "ReduceMax",
        {"X": np.zeros((2, 3), np.float32)},
        lambda x: torch.amax(x, 1),
        {"keepdims": 0},
        constants={"a": ints(1)},
        name="ReduceMax of equals",
        kinked=True,
    )
    yield one("ReduceSum", {"X": X}, lambda x: x.sum(), {"keepdims": 0}, name="ReduceSum of all")
    yield one(
        "ReduceMean",
        {"X": X},
        lambda x: x.mean((0, 1)),
        {"keepdims": 0},
        constants={"a": ints(0, 1)},
        name="ReduceMean over a varying batch",
        batch=(),
    )
