"""The walk backwards: what is on the path, what is opened, what is known before a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgeengine.errors import UserError
from edgeengine.gradients.differentiate import differentiate, pruned
from edgeengine.gradients.looking import Sizes
from edgeengine.gradients.working_copy import expanded, opset_of, verify_equal, working_copy
from edgeengine.graph.session import create

Array = np.ndarray
NODE = helper.make_node


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    x: Sequence[int | str],
    weights: dict[str, Array],
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Inputs x, output L; the nodes give it."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("L", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", 20), *[helper.make_opsetid("local", 1)][: len(functions)]]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def gradients(proto: onnx.ModelProto, x: Array, wanted: list[str], varies: bool = False) -> tuple[dict[str, Array], set[str]]:
    """Gradients of L at x, and the operators of the graph that gave them."""
    copy = working_copy(proto, "m")
    sizes = Sizes({"x": x.shape}, {"x": (x.shape[0] + varies, *x.shape[1:])}, {})
    seen = expanded(copy, sizes, wanted)
    verify_equal(proto, copy, sizes, "m")
    back = differentiate(copy.graph, opset_of(copy), seen, "L", wanted)
    names = {p: g.name for p, g in back.gradients.items()}
    nodes = pruned(back.tape.nodes, names.values())
    del copy.graph.node[:], copy.graph.output[:]
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(back.tape.constants.values())
    copy.graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names.values()))
    session = create(copy.SerializeToString(), optimized=False)
    found = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"x": x}), strict=True))
    return {p: found[g] for p, g in names.items()}, {n.op_type for n in nodes}


TOTAL = NODE("ReduceSum", ["y"], ["L"], name="total", keepdims=0)
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 3 - 1


def test_quantizers_pass_gradients_straight_through_within_their_range() -> None:
    nodes = [
        NODE("Mul", ["x", "w"], ["m"]),
        NODE("QuantizeLinear", ["m", "scale", "zero"], ["q"]),
        NODE("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
        TOTAL,
    ]
    weights = {"w": np.float32([1, 1, 100]), "scale": np.float32(0.02), "zero": np.int8(0)}
    found, _ = gradients(graph_of(nodes, [2, 3], weights), X, ["w"])
    # The last column is out of range, so nothing of it comes back; the others as if there were no quantizer.
    np.testing.assert_allclose(found["w"], [X[:, 0].sum(), X[:, 1].sum(), 0], rtol=1e-6)


def test_branch_decided_by_shapes_is_opened() -> None:
    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([NODE(op, ["h"], [op])], op, [], [helper.make_tensor_value_info(op, TensorProto.FLOAT, None)])

    nodes = [
        NODE("Mul", ["x", "w"], ["h"]),
        NODE("Shape", ["h"], ["s"]),
        NODE("Gather", ["s", "last"], ["d"]),
        NODE("Equal", ["d", "three"], ["c"]),
        NODE("If", ["c"], ["y"], then_branch=branch("Exp"), else_branch=branch("Det")),
        TOTAL,
    ]
    weights = {"w": np.float32([1, 2, 3]), "last": np.int64(-1), "three": np.int64(3)}
    found, ops = gradients(graph_of(nodes, ["n", 3], weights), X, ["w"], varies=True)
    np.testing.assert_allclose(found["w"], (np.exp(X * weights["w"]) * X).sum(0), rtol=1e-5)
    assert not ops & {"If", "Det"}


def test_functions_of_the_model_are_differentiated_as_their_bodies() -> None:
    body = [NODE("Mul", ["a", "a"], ["sq"]), NODE("Sin", ["sq"], ["b"])]
    function = helper.make_function("local", "SinSquare", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    nodes = [NODE("Mul", ["x", "w"], ["h"]), NODE("SinSquare", ["h"], ["y"], domain="local"), TOTAL]
    w = np.float32([1, 2, 3])
    found, _ = gradients(graph_of(nodes, [2, 3], {"w": w}, [function]), X, ["w"])
    np.testing.assert_allclose(found["w"], (np.cos((X * w) ** 2) * 2 * X * w * X).sum(0), rtol=1e-5)


def test_operators_off_the_path_need_no_rule() -> None:
    """Det has none: before the parameter, and beside the loss, it does not matter."""
    nodes = [
        NODE("Einsum", ["x", "x"], ["square"], equation="ni,nj->nij"),
        NODE("Det", ["square"], ["d"]),
        NODE("Unsqueeze", ["d", "one"], ["d1"]),
        NODE("Add", ["x", "d1"], ["z"]),
        NODE("Mul", ["z", "w"], ["y"]),
        TOTAL,
        NODE("Det", ["square"], ["unused"]),
    ]
    w = np.float32([1, 2, 3])
    found, _ = gradients(graph_of(nodes, [2, 3], {"w": w, "one": np.int64([1])}), X, ["w"])
    np.testing.assert_allclose(found["w"], X.sum(0), atol=1e-5)


def test_parameters_without_influence_have_no_gradient() -> None:
    nodes = [NODE("Mul", ["x", "w"], ["h"]), NODE("Floor", ["h"], ["f"]), NODE("Mul", ["f", "v"], ["y"]), TOTAL]
    weights = {"w": np.float32([1, 2, 3]), "v": np.float32([1, 1, 1])}
    found, _ = gradients(graph_of(nodes, [2, 3], weights), X, ["w", "v"])
    assert found.keys() == {"v"}


def test_loss_must_be_a_scalar() -> None:
    with pytest.raises(UserError, match="not a scalar"):
        gradients(graph_of([NODE("Mul", ["x", "w"], ["L"])], [2, 3], {"w": np.float32([1, 2, 3])}), X, ["w"])


def test_converter_that_fails_is_named_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is found by trying ever longer beginnings of the graph."""
    proto = graph_of([NODE("Exp", ["x"], ["e"], name="fine"), NODE("Sin", ["e"], ["y"], name="odd"), TOTAL], [2, 3], {})
    proto.opset_import[0].version = 13

    def convert(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        if any(n.op_type == "Sin" for n in model.graph.node):
            raise RuntimeError("no adapter for Sin")
        return model

    monkeypatch.setattr("edgeengine.gradients.working_copy.version_converter.convert_version", convert)
    with pytest.raises(UserError, match="Sin 'odd' cannot be converted from opset 13 to 20"):
        working_copy(proto, "m")
