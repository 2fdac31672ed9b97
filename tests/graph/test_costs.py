"""Multiply-accumulates: hand-counted rows, unknown operators, bodies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import defs, helper

from edgeengine.errors import NotSupported
from edgeengine.graph.costs import CONTROL_FLOW, RULES, ZERO, Op, macs
from edgeengine.graph.load import load_model
from edgeengine.graph.study import study
from tests.graph.onnxes import FLOAT, model, node, value, weight, x_in

Save = Callable[..., Path]


@pytest.mark.parametrize(
    ("made", "inputs", "outputs", "expected"),
    [
        (node("Conv", ["x", "w"], ["y"]), [(1, 3, 8, 8), (16, 3, 3, 3)], [(1, 16, 6, 6)], 16 * 36 * 27),
        (node("Conv", ["x", "w"], ["y"], group=4), [(2, 4, 5), (4, 1, 3)], [(2, 4, 3)], 24 * 3),
        (node("ConvTranspose", ["x", "w"], ["y"]), [(1, 4, 5, 5), (4, 2, 3, 3)], [(1, 2, 7, 7)], 100 * 18),
        (node("Gemm", ["a", "b"], ["y"], transA=1), [(5, 2), (5, 3)], [(2, 3)], 30),
        (node("MatMul", ["a", "b"], ["y"]), [(7, 2, 5), (5, 3)], [(7, 2, 3)], 210),
        (node("MatMul", ["a", "b"], ["y"]), [(5,), (5,)], [()], 5),
        (node("Einsum", ["a", "b"], ["y"], equation="...ij, ...jk -> ...ik"), [(7, 2, 5), (7, 5, 3)], [(7, 2, 3)], 210),
        (node("Einsum", ["a"], ["y"], equation="ij->ji"), [(2, 5)], [(5, 2)], 0),
        (node("LSTM", ["x", "w", "r"], ["y"]), [(6, 2, 3), (1, 16, 3), (1, 16, 4)], [(6, 1, 2, 4)], 12 * (48 + 64)),
        (
            node("Attention", ["q", "k", "v"], ["y"]),
            [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)],
            [(1, 2, 3, 4)],
            2 * 24 * 5,
        ),
        (node("Softmax", ["x"], ["y"]), [(1, 9)], [(1, 9)], 0),
    ],
)
def test_rows(made: onnx.NodeProto, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]], expected: int) -> None:
    assert macs(Op(made, tuple(inputs), tuple(outputs)), {"": 17}, {}, "0") == expected


def test_every_standard_operator_has_a_row() -> None:
    """Up to the newest opset that ONNX Runtime 1.32 runs."""
    known = RULES.keys() | ZERO | CONTROL_FLOW
    schemas = [s for s in defs.get_all_schemas() if s.domain == "" and s.since_version <= 26]
    assert {s.name for s in schemas if ("", s.name) not in known} <= {"AffineGrid"}
    assert not RULES.keys() & ZERO


def test_an_unknown_operator_names_itself_and_its_node() -> None:
    with pytest.raises(NotSupported) as caught:
        macs(Op(node("Frobnicate", ["x"], ["y"], domain="org.x", name="n7"), ((1,),), ((1,),)), {"org.x": 3}, {}, "4")
    assert (caught.value.op, caught.value.domain, caught.value.opset, caught.value.node) == (
        "Frobnicate",
        "org.x",
        3,
        "n7",
    )


@pytest.mark.usefixtures("in_process")
def test_bodies_count_what_ran(saved: Save) -> None:
    """A Loop of 5 iterations with a MatMul inside an If inside it."""
    then = helper.make_graph([node("MatMul", ["s", "W"], ["t"])], "then", [], [value("t", FLOAT, None)])
    other = helper.make_graph([node("Neg", ["s"], ["e"])], "else", [], [value("e", FLOAT, None)])
    body_nodes = [node("Identity", ["c"], ["c2"]), node("If", ["go"], ["s2"], then_branch=then, else_branch=other)]
    body = helper.make_graph(
        body_nodes,
        "body",
        [value("i", onnx.TensorProto.INT64, []), value("c", onnx.TensorProto.BOOL, []), value("s", FLOAT, None)],
        [value("c2", onnx.TensorProto.BOOL, []), value("s2", FLOAT, None)],
    )
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("ReduceSum", ["h"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["go"]),
        node("Loop", ["five", "", "h"], ["y"], body=body),
    ]
    weights = [weight("W", np.eye(4)), weight("zero", 0), weight("five", 5, "int64")]
    seen = study(load_model(saved(model(nodes, [x_in("N", 4)], ["y"], weights))))
    assert seen.macs(seen.flow.order) == (5 * 16, ())
