"""Quantize-dequantize groups stay together, and a boundary between them carries the quantized tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeengine.graph import build_bundle
from edgeengine.graph.dataflow import analyze
from edgeengine.graph.load import load_model
from edgeengine.graph.units import group
from tests.graph.onnxes import FLOAT, assert_same_bits, model, node, protos, run_chain, run_source, value, weight, x_in

pytestmark = pytest.mark.usefixtures("in_process")
Save = Callable[..., Path]
rng = np.random.default_rng(13)
X = rng.standard_normal((2, 8)).astype(np.float32)


def q(source: str, target: str) -> onnx.NodeProto:
    return node("QuantizeLinear", [source, "scale", "zero"], [target])


def dq(source: str, target: str) -> onnx.NodeProto:
    return node("DequantizeLinear", [source, "scale", "zero"], [target])


PARAMETERS = [weight("scale", 0.05), weight("zero", 128, "uint8")]


def s4() -> onnx.ModelProto:
    """One dequantizer, two readers."""
    nodes = [q("x", "xq"), dq("xq", "xd"), node("Relu", ["xd"], ["r"]), q("r", "rq"), dq("rq", "rd"),
             node("Relu", ["rd"], ["y"]), node("Sigmoid", ["rd"], ["z"])]  # fmt: skip
    return model(nodes, [x_in("N", 8)], ["y", "z"], PARAMETERS)


def two_way_cuts(path: Path) -> list[list[str]]:
    """A frontier for every downward-closed, proper, non-empty set of units: all its tensors."""
    flow = analyze(load_model(path))
    units = group(flow)
    made = [u.writes for u in units]
    before = [{v for v, w in enumerate(made) if w & units[u].reads} for u in range(len(units))]
    found = []
    for size in range(1, len(units)):
        for chosen in itertools.combinations(range(len(units)), size):
            if all(before[u] <= set(chosen) for u in chosen):
                found.append([t for u in chosen for t in sorted(units[u].writes) if t not in flow.copies])
    return found


def test_s4_every_two_way_cut_carries_the_quantized_tensor(saved: Save) -> None:
    path = saved(s4())
    expected = run_source(path, {"x": X})
    cuts = two_way_cuts(path)
    assert len(cuts) == 4  # after xq; after rq; and with one of the two readers of rq
    for cut in cuts:
        bundle = build_bundle(path, path.with_suffix(".edge"), at=[cut])
        assert_same_bits(run_chain(bundle, {"x": X}), expected)
        crossing = bundle.manifest.subgraph("s1_2").inputs
        assert [t.dtype for t in crossing] == ["uint8"], cut
        for proto in protos(bundle).values():
            # Scale and zero point are on both sides, and every dequantizer has one reader.
            assert {t.name for t in proto.graph.initializer} == {"scale", "zero"}
            reads = [t for n in proto.graph.node for t in n.input]
            assert all(reads.count(n.output[0]) <= 1 for n in proto.graph.node if n.op_type == "DequantizeLinear")


def test_groups_are_units(saved: Save) -> None:
    flow = analyze(load_model(saved(s4())))
    kinds = [sorted(flow.nodes[n].op_type for n in unit.nodes) for unit in group(flow)]
    assert kinds == [
        ["QuantizeLinear"],
        ["DequantizeLinear", "QuantizeLinear", "Relu"],
        ["DequantizeLinear", "Relu"],
        ["DequantizeLinear", "Sigmoid"],
    ]


def test_a_cut_at_a_dequantized_tensor_is_one_at_the_quantized(saved: Save) -> None:
    path = saved(s4())
    bundle = build_bundle(path, path.with_suffix(".edge"), at=[["rd"]])
    assert [t.name for t in bundle.manifest.subgraph("s1_2").inputs] == ["rq"]


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_a_residual_net_with_quantized_weights(saved: Save, parts: int) -> None:
    """Conv with dequantized weights (constants: with their reader), a residual sum, int8, a dequantized output."""
    w = rng.integers(-100, 100, (4, 4, 1, 1))
    nodes = [q("x", "xq"), dq("xq", "xd"),
             node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
             node("Conv", ["xd", "wd"], ["c"]), q("c", "cq"), dq("cq", "cd"),
             node("Relu", ["cd"], ["r"]), q("r", "rq"), dq("rq", "rd"),
             node("Conv", ["rd", "wd"], ["e"]), q("e", "eq"), dq("eq", "ed"),
             node("Add", ["ed", "cd"], ["s"]), q("s", "sq"), dq("sq", "y")]  # fmt: skip
    weights = [*PARAMETERS, weight("w", w, "int8"), weight("ws", 0.01), weight("wz", 0, "int8")]
    path = saved(model(nodes, [x_in("N", 4, 5, 5)], ["y", "cd"], weights))
    feeds = {"x": rng.standard_normal((1, 4, 5, 5)).astype(np.float32)}
    bundle = build_bundle(path, path.with_suffix(".edge"), parts=parts)
    assert_same_bits(run_chain(bundle, feeds), run_source(path, feeds))
    outputs = {"y", "cd"}
    crossing = {t.name: t.dtype for s in bundle.manifest.subgraphs for t in s.inputs if t.name != "x"}
    assert set(crossing.values()) <= {"uint8"}, crossing
    assert {o.name for o in bundle.manifest.outputs} == outputs


def test_a_reader_inside_a_body_shares_the_dequantizer(saved: Save) -> None:
    then = helper.make_graph([node("Neg", ["rd"], ["t"])], "then", [], [value("t", FLOAT, None)])
    other = helper.make_graph([node("Abs", ["rd"], ["e"])], "else", [], [value("e", FLOAT, None)])
    nodes = [q("x", "rq"), dq("rq", "rd"), node("Relu", ["rd"], ["r"]), node("Tanh", ["rd"], ["h"]),
             node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "scale"], ["c"]),
             node("If", ["c"], ["i"], then_branch=then, else_branch=other), node("Add", ["r", "i"], ["a"]),
             node("Add", ["a", "h"], ["y"])]  # fmt: skip
    path = saved(model(nodes, [x_in("N", 8)], ["y"], PARAMETERS))
    for parts in (2, 3, 4):
        bundle = build_bundle(path, path.with_suffix(".edge"), parts=parts)
        for feeds in ({"x": np.abs(X)}, {"x": -np.abs(X)}):
            assert_same_bits(run_chain(bundle, feeds), run_source(path, feeds))


def test_types_no_boundary_carries_stay_inside(saved: Save) -> None:
    """Four-bit integers have no numpy form here: their groups are one unit."""
    nodes = [node("QuantizeLinear", ["x", "scale"], ["xq"], output_dtype=TensorProto.UINT4),
             node("DequantizeLinear", ["xq", "scale"], ["xd"]), node("Relu", ["xd"], ["r"]), node("Neg", ["xd"], ["n"]),
             node("Add", ["r", "n"], ["y"])]  # fmt: skip
    path = saved(model(nodes, [x_in("N", 8)], ["y"], [weight("scale", 0.05)], opset=21, ir=10))
    bundle = build_bundle(path, path.with_suffix(".edge"), parts=2)
    assert [t.dtype for t in bundle.manifest.subgraph("s1_2").inputs] == ["float32", "float32"]


def test_copies_take_no_name_that_is_in_use(saved: Save) -> None:
    nodes = [q("x", "rq"), dq("rq", "rd"), node("Relu", ["rd"], ["r"]), node("Neg", ["rd"], ["rd/for_3"]),
             node("Add", ["r", "rd/for_3"], ["y"])]  # fmt: skip
    path = saved(model(nodes, [x_in("N", 8)], ["y"], PARAMETERS))
    bundle = build_bundle(path, path.with_suffix(".edge"), parts=4)
    assert_same_bits(run_chain(bundle, {"x": X}), run_source(path, {"x": X}))
