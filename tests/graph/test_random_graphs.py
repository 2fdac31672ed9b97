"""Random graphs x random cuts, bit by bit against the source, by an oracle that shares no code with the verifier."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.graph import build_bundle
from edgeengine.graph.dataflow import reads_of
from tests.graph.onnxes import FLOAT, assert_same_bits, model, node, run_chain, run_source, value, weight, x_in

WIDTH = 8
GRAPHS = 150
CUTS = 3


class Grower:
    """Grows a graph of tensors [N, 8] node by node, preferring recent tensors but reaching back for residuals."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = [weight("zero", 0), weight("one", 1)]
        self.tensors = ["x", "z"]
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def pick(self) -> str:
        recent = self.tensors[-3:] if self.random.random() < 0.6 else self.tensors
        return self.random.choice(recent)

    def add(self, op: str, inputs: list[str], outputs: list[str], **attributes: object) -> None:
        # A third unnamed, a third all named alike, the rest distinct.
        name = self.random.choice(["", "same", self.name("node")])
        self.nodes.append(node(op, inputs, outputs, name=name, **attributes))

    def weight(self, *shape: int) -> str:
        name = self.name("w")
        array = self.values.standard_normal(shape) / 2
        if self.random.random() < 0.3:
            self.nodes.append(node("Constant", [], [name], value=weight("", array)))
        else:
            self.weights.append(weight(name, array))
        return name

    def grow(self) -> None:
        kinds = [
            self.unary,
            self.binary,
            self.matmul,
            self.split,
            self.clip,
            self.top,
            self.shape,
            self.constant,
            self.branch,
        ]
        made = self.random.choices(kinds, [4, 4, 3, 2, 1, 1, 1, 1, 1])[0]()
        self.tensors.append(made)

    def unary(self) -> str:
        out = self.name("u")
        self.add(self.random.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Softmax"]), [self.pick()], [out])
        return out

    def binary(self) -> str:
        out = self.name("b")
        self.add(self.random.choice(["Add", "Mul", "Sub", "Max"]), [self.pick(), self.pick()], [out])
        return out

    def matmul(self) -> str:
        out = self.name("m")
        self.add("MatMul", [self.pick(), self.weight(WIDTH, WIDTH)], [out])
        return out

    def split(self) -> str:
        """Three outputs, of which one may be used by nobody."""
        a, b, c, out = (self.name("s") for _ in range(4))
        sizes = self.name("sizes")
        self.weights.append(weight(sizes, [2, 4, 2], "int64"))
        self.add("Split", [self.pick(), sizes], [a, b, c], axis=1)
        self.add("Concat", [b, b] if self.random.random() < 0.5 else [c, b, a], [out], axis=1)
        return out

    def clip(self) -> str:
        out = self.name("c")
        self.add("Clip", [self.pick(), "", "one"], [out])
        return out

    def top(self) -> str:
        """TopK: values and indices, the indices cast back."""
        k, top, where, out = (self.name("k") for _ in range(4))
        self.weights.append(weight(k, [WIDTH], "int64"))
        self.add("TopK", [self.pick(), k], [top, where])
        self.add("Cast", [where], [out], to=FLOAT)
        self.tensors.append(top)
        return out

    def shape(self) -> str:
        """A shape computed from one tensor used to reshape another."""
        shape, out = self.name("shape"), self.name("r")
        self.add("Shape", [self.pick()], [shape])
        self.add("Reshape", [self.pick(), shape], [out])
        return out

    def constant(self) -> str:
        """A node that depends on weights only, read by a run-time node."""
        folded, out = self.name("f"), self.name("k")
        self.add("Exp", [self.weight(WIDTH)], [folded])
        self.add("Add", [self.pick(), folded], [out])
        return out

    def branch(self, depth: int = 0) -> str:
        """An If whose branches capture tensors and weights; nested half of the time."""
        summed, condition, out = (self.name("i") for _ in range(3))
        self.add("ReduceSum", [self.pick()], [summed], keepdims=0)
        self.add("Greater", [summed, "zero"], [condition])
        then, other = self.body(condition, 1), self.body(condition, 0)
        self.add("If", [condition], [out], then_branch=then, else_branch=other)
        return out

    def body(self, condition: str, depth: int) -> onnx.GraphProto:
        out, inner = self.name("o"), self.name("n")
        nodes = [node("Mul", [self.pick(), self.weight(WIDTH)], [inner]), node("Add", [inner, self.pick()], [out])]
        if depth and self.random.random() < 0.5:
            nested, last = self.name("n"), self.name("o")
            then, other = self.body(condition, depth - 1), self.body(condition, 0)
            nodes += [
                node("If", [condition], [nested], then_branch=then, else_branch=other),
                node("Add", [out, nested], [last]),
            ]
            out = last
        return helper.make_graph(nodes, self.name("body"), [], [value(out, FLOAT, None)])

    def model(self) -> onnx.ModelProto:
        for _ in range(self.random.randint(4, 14)):
            self.grow()
        read = {t for n in self.nodes for t in reads_of(n)}
        unread = [t for t in self.tensors if t not in read and self.random.random() < 0.9]
        outputs = dict.fromkeys([*unread, self.tensors[-1], self.random.choice(self.tensors)])
        nodes = [n for n in self.nodes if n.op_type == "Constant"] + [n for n in self.nodes if n.op_type != "Constant"]
        return model(nodes, [x_in("N", WIDTH), x_in("N", WIDTH, name="z")], list(outputs), self.weights)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("seed", range(GRAPHS))
def test_random_graph_random_cuts(saved: Callable[..., Path], seed: int) -> None:
    grower = Grower(seed)
    path = saved(grower.model())
    proto = onnx.load(path)
    # The runtime refuses repeated node names (loading drops them): the oracle runs the file without any.
    for n in proto.graph.node:
        n.name = ""
    oracle = saved(proto, "oracle.onnx")
    feeds = {n: np.random.default_rng([seed, 1]).standard_normal((3, WIDTH)).astype(np.float32) for n in ("x", "z")}
    expected = run_source(oracle, feeds)
    choose = random.Random(seed + 1)
    made = [t for n in proto.graph.node if n.op_type != "Constant" for t in n.output if t]
    for _ in range(CUTS):
        options: dict[str, object] = {"parts": choose.randint(1, 4)}
        if choose.random() < 0.6:
            options = {"at": [choose.sample(made, min(len(made), choose.randint(1, 3))) for _ in range(choose.randint(1, 3))]}
        try:
            bundle = build_bundle(path, path.with_suffix(".edge"), **options)  # type: ignore[arg-type]
        except UserError as e:
            assert any(t in str(e) for t in ("parts are impossible", "no node lies", "does not depend on the inputs"))
            continue
        assert bundle.manifest.exactness.bit_equal_unoptimized
        assert_same_bits(run_chain(bundle, feeds, _bounds(bundle, choose)), expected)


def _bounds(bundle: Bundle, choose: random.Random) -> list[int]:
    inner = range(1, bundle.manifest.segments)
    return [0, *(i for i in inner if choose.random() < 0.7), bundle.manifest.segments]
