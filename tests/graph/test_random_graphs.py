"""Random graphs x random cuts, bit by bit against the source, by an oracle that shares no code with the verifier."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeengine.errors import UserError
from edgeengine.graph import build_bundle, load_model
from edgeengine.graph.candidates import Writer
from edgeengine.graph.dataflow import reads_of
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.study import Study, study
from tests.graph.onnxes import FLOAT, assert_same_bits, model, node, run_chain, run_source, session, value, weight, x_in

WIDTH = 8
GRAPHS, CUTS = 400, 5  # 2,000 cases
BUILDS = 40  # of these graphs also go through everything build_bundle does


class Grower:
    """Grows a graph of tensors [N, 8] node by node, preferring recent tensors but reaching back for residuals."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = [weight("zero", 0), weight("one", 1), weight("three", 3, "int64"),
                                           weight("scale", 0.03), weight("middle", 128, "uint8")]  # fmt: skip
        self.tensors = ["x", "z"]
        self.bodies = self.count = 0
        self.functions: list[onnx.FunctionProto] = []
        self.tied = ""

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
            self.loop,
            self.function,
            self.tie,
            self.quantized,
        ]
        made = self.random.choices(kinds, [4, 4, 3, 2, 1, 1, 1, 1, 1.5, 1, 1, 1, 2])[0]()
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

    def branch(self) -> str:
        """An If whose branches capture tensors and weights; nested, or holding a Loop, some of the time."""
        condition, out = self.condition(), self.name("i")
        then, other = self.body(condition, 2), self.body(condition, 0)
        self.add("If", [condition], [out], then_branch=then, else_branch=other)
        return out

    def condition(self) -> str:
        summed, condition = self.name("i"), self.name("i")
        self.add("ReduceSum", [self.pick()], [summed], keepdims=0)
        self.add("Greater", [summed, "zero"], [condition])
        return condition

    def body(self, condition: str, depth: int) -> onnx.GraphProto:
        """Local names repeat from body to body, as exporters make them; only the outer graph's are unique."""
        self.bodies += 1
        local = [f"local{i}" + ("" if depth else f"_{self.bodies}") for i in range(4)]
        local = [f"{n}_d{depth}" for n in local]
        inner, out, nested, last = local
        nodes = [node("Mul", [self.pick(), self.weight(WIDTH)], [inner]), node("Add", [inner, self.pick()], [out])]
        if depth and self.random.random() < 0.6:
            if self.random.random() < 0.5:
                then, other = self.body(condition, depth - 1), self.body(condition, 0)
                nodes.append(node("If", [condition], [nested], then_branch=then, else_branch=other))
            else:
                nodes.append(node("Loop", ["three", "", out], [nested], body=self.loop_body(out)))
            nodes.append(node("Add", [out, nested], [last]))
            out = last
        return helper.make_graph(nodes, self.name("body"), [], [value(out, FLOAT, None)])

    def loop(self) -> str:
        """A Loop that carries a tensor and stacks another; both outputs may be read."""
        out, stacked, flat = (self.name("l") for _ in range(3))
        self.add("Loop", ["three", "", self.pick()], [out, stacked], body=self.loop_body(self.pick(), scan=True))
        if self.random.random() < 0.5:
            self.add("ReduceMean", [stacked], [flat], axes=[0], keepdims=0)
            self.tensors.append(flat)
        return out

    def loop_body(self, captured: str, scan: bool = False) -> onnx.GraphProto:
        self.bodies += 1
        tag = f"b{self.bodies}"
        nodes = [node("Mul", [f"{tag}_in", self.weight(WIDTH)], [f"{tag}_m"]),
                 node("Sub", [f"{tag}_m", captured], [f"{tag}_out"]),
                 node("Identity", [f"{tag}_c"], [f"{tag}_go"])]  # fmt: skip
        outputs = [value(f"{tag}_go", TensorProto.BOOL, []), value(f"{tag}_out", FLOAT, None)]
        if scan:
            nodes.append(node("Neg", [f"{tag}_out"], [f"{tag}_scan"]))
            outputs.append(value(f"{tag}_scan", FLOAT, None))
        inputs = [
            value(f"{tag}_i", TensorProto.INT64, []),
            value(f"{tag}_c", TensorProto.BOOL, []),
            value(f"{tag}_in", FLOAT, None),
        ]
        return helper.make_graph(nodes, self.name("loop"), inputs, outputs)

    def function(self) -> str:
        """A call of a local function; one in three calls another inside. Its inner names are those of outer tensors."""
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)]
        name = f"F{len(self.functions)}"
        inner = [node("Tanh", ["x"], ["z"]), node("Mul", ["z", "w"], ["one"])]
        if self.functions and self.random.random() < 0.4:
            inner.append(node(self.functions[-1].name, ["one", "w"], ["y"], domain="loc"))
        else:
            inner.append(node("Add", ["one", "x"], ["y"]))
        self.functions.append(helper.make_function("loc", name, ["x", "w"], ["y"], inner, opsets))
        out = self.name("fn")
        self.add(name, [self.pick(), self.weight(WIDTH)], [out], domain="loc")
        return out

    def tie(self) -> str:
        """One weight read in several places, here also transposed by a constant node."""
        if not self.tied:
            self.tied = self.weight(WIDTH, WIDTH)
        turned, first, out = (self.name("t") for _ in range(3))
        self.add("Transpose", [self.tied], [turned])
        self.add("MatMul", [self.pick(), self.tied], [first])
        self.add("MatMul", [first, turned], [out])
        return out

    def quantized(self) -> str:
        """DQ-op-Q; the last dequantizer has one reader or two. Its name may look like one of our copies."""
        q1, d1, r, q2, a, b, out = (self.name("q") for _ in range(7))
        d2 = self.random.choice([self.name("q"), self.name("q") + "/for_1"])
        self.add("QuantizeLinear", [self.pick(), "scale", "middle"], [q1])
        self.add("DequantizeLinear", [q1, "scale", "middle"], [d1])
        self.add("Relu", [d1], [r])
        self.add("QuantizeLinear", [r, "scale", "middle"], [q2])
        self.add("DequantizeLinear", [q2, "scale", "middle"], [d2])
        self.add("Sigmoid", [d2], [a])
        self.add("Neg", [d2], [b])
        self.add("Add", [a, b], [out])
        self.tensors.append(self.random.choice([d2, r]))
        return out

    def model(self) -> onnx.ModelProto:
        for _ in range(self.random.randint(4, 14)):
            self.grow()
        read = {t for n in self.nodes for t in reads_of(n)}
        unread = [t for t in self.tensors if t not in read and self.random.random() < 0.9]
        outputs = dict.fromkeys([*unread, self.tensors[-1], self.random.choice(self.tensors)])
        nodes = [n for n in self.nodes if n.op_type == "Constant"] + [n for n in self.nodes if n.op_type != "Constant"]
        inputs = [x_in("N", WIDTH), x_in("N", WIDTH, name="z")]
        domains = {"loc": 1} if self.functions else {}
        result = model(nodes, inputs, list(outputs), self.weights, functions=self.functions, domains=domains)
        # Recorded shapes are wrong as often as right.
        for tensor in self.random.sample(self.tensors[2:], min(3, len(self.tensors) - 2)):
            if tensor not in outputs:
                shape = self.random.choice([[7, WIDTH], [1, WIDTH], ["N", WIDTH], ["K", "K"], None])
                result.graph.value_info.append(value(tensor, FLOAT, shape))
        return result


def prepared(saved: Callable[..., Path], seed: int) -> tuple[Path, onnx.ModelProto, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(the model's file, its proto, inputs with batch 3, what the runtime makes of them)."""
    path = saved(Grower(seed).model())
    proto = onnx.load(path)
    # The runtime refuses repeated node names, and wrong recorded shapes are at best ignored: the oracle runs without any.
    for n in proto.graph.node:
        n.name = ""
    del proto.graph.value_info[:]
    feeds = {n: np.random.default_rng([seed, 1]).standard_normal((3, WIDTH)).astype(np.float32) for n in ("x", "z")}
    return path, proto, feeds, run_source(saved(proto, "oracle.onnx"), feeds)


def random_cut(seen: Study, choose: random.Random) -> Segmentation:
    """Any legal cut: positions in a random order of the units that keeps makers before readers."""
    maker = {t: u for u, unit in enumerate(seen.units) for t in unit.writes}
    before = [{maker[t] for t in unit.reads if t in maker} for unit in seen.units]
    order: list[int] = []
    left = set(range(len(before)))
    while left:
        order.append(choose.choice(sorted(u for u in left if before[u] <= set(order))))
        left.remove(order[-1])
    parts = choose.randint(1, min(5, len(order)))
    bounds = [0, *sorted(choose.sample(range(1, len(order)), parts - 1)), len(order)]
    rank = {n: i for i, n in enumerate(seen.flow.order)}
    return Segmentation(
        tuple(
            tuple(sorted((n for u in order[a:b] for n in seen.units[u].nodes), key=rank.__getitem__))
            for a, b in itertools.pairwise(bounds)
        )
    )


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("block", range(20))
def test_random_graphs_random_legal_cuts(saved: Callable[..., Path], tmp_path: Path, block: int) -> None:
    """The chain of parts on inputs of a batch the study never saw, by sessions of our own."""
    for seed in range(block * GRAPHS // 20, (block + 1) * GRAPHS // 20):
        path, _, feeds, expected = prepared(saved, seed)
        choose = random.Random(seed + 1)
        seen = study(load_model(path))
        folder = tmp_path / f"parts{seed}"
        folder.mkdir()
        writer = Writer(seen, folder)
        for case in range(CUTS):
            segmentation = random_cut(seen, choose)
            count = len(segmentation.segments)
            bounds = [0, *(i for i in range(1, count) if choose.random() < 0.8), count]
            trial = writer.write(segmentation, list(itertools.pairwise(bounds)), stem=f"c{case}_")
            tensors = dict(feeds)
            for sub in trial.subgraphs:
                names = [o.name for o in sub.outputs]
                results = session(str(folder / sub.file)).run(names, {i.name: tensors[i.name] for i in sub.inputs})
                tensors.update(zip(names, results, strict=True))
            assert_same_bits({n: tensors[n] for n in expected}, expected)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("seed", range(BUILDS))
def test_random_graphs_through_a_bundle(saved: Callable[..., Path], seed: int) -> None:
    """Everything a build does, the verifier included, with cuts as users ask for them."""
    path, proto, feeds, expected = prepared(saved, seed)
    choose = random.Random(seed + 1)
    made = [t for n in proto.graph.node if n.op_type != "Constant" for t in n.output if t]
    for at in (False, True):
        options: dict[str, object] = {"parts": choose.randint(1, 4)}
        if at:
            options = {"at": [choose.sample(made, min(len(made), choose.randint(1, 3))) for _ in range(choose.randint(1, 3))]}
        try:
            bundle = build_bundle(path, path.with_suffix(".edge"), **options)  # type: ignore[arg-type]
        except UserError as e:
            assert any(
                t in str(e) for t in ("parts are impossible", "no node lies", "does not depend on the inputs", "an input of")
            )
            continue
        assert bundle.manifest.exactness.bit_equal_unoptimized
        inner = range(1, bundle.manifest.segments)
        bounds = [0, *(i for i in inner if choose.random() < 0.7), bundle.manifest.segments]
        assert_same_bits(run_chain(bundle, feeds, bounds), expected)
