"""Fixed inputs: decided branches are opened at any depth, and the parts still give what the original gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeengine.errors import UserError
from edgeengine.graph import build_bundle, inspect_model
from tests.graph.onnxes import FLOAT, assert_same_bits, model, node, protos, run_chain, run_source, value, weight, x_in
from tests.models import model_file

pytestmark = pytest.mark.usefixtures("in_process")
Save = Callable[..., Path]
X = np.random.default_rng(17).standard_normal((2, 4)).astype(np.float32)
INT64 = TensorProto.INT64


def body(name: str, nodes: list[onnx.NodeProto], outputs: list[str], weights: list[TensorProto] | None = None) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [value(o, FLOAT, None) for o in outputs], weights or [])


def rate_model() -> onnx.ModelProto:
    """sr decides an If; inside the branch taken an Equal of sr decides another; both branches use the same names."""
    deep = body("deep", [node("Tanh", ["h"], ["t"]), node("Mul", ["t", "bw"], ["r"])], ["r"], [weight("bw", [1, 2, 3, 4])])
    flat = body("flat", [node("Neg", ["h"], ["t"]), node("Abs", ["t"], ["r"])], ["r"])
    then = body(
        "then",
        [node("Equal", ["sr", "sixteen"], ["again"]), node("Exp", ["h"], ["t2"]),
         node("If", ["again"], ["n"], then_branch=deep, else_branch=flat), node("Add", ["n", "t2"], ["out"])],
        ["out"],
    )  # fmt: skip
    other = body("else", [node("Sin", ["h"], ["t2"]), node("Cos", ["t2"], ["out"])], ["out"])
    nodes = [node("Relu", ["x"], ["h"]), node("Greater", ["sr", "ten"], ["high"]),
             node("If", ["high"], ["i"], then_branch=then, else_branch=other), node("Sigmoid", ["i"], ["y"])]  # fmt: skip
    weights = [weight("sixteen", 16000, "int64"), weight("ten", 10000, "int64")]
    return model(nodes, [x_in("N", 4), value("sr", INT64, [])], ["y"], weights)


def check(path: Path, fixed: dict[str, object], parts: int | None = None) -> list[onnx.ModelProto]:
    values = {n: np.asarray(v) for n, v in fixed.items()}
    for count in (1, 2, 3) if parts is None else (parts,):
        bundle = build_bundle(path, path.with_suffix(".edge"), parts=count, fix=values)
        expected = run_source(path, {"x": X, **values})
        assert_same_bits(run_chain(bundle, {"x": X}), expected)
        assert set(bundle.manifest.fixed) == set(fixed) and not {i.name for i in bundle.manifest.inputs} & set(fixed)
        assert bundle.manifest.source == path.name
    return list(protos(bundle).values())


@pytest.mark.parametrize(("rate", "units"), [(16000, 6), (12000, 6), (8000, 4)])
def test_branches_open_at_any_depth(saved: Save, rate: int, units: int) -> None:
    path = saved(rate_model())
    for proto in check(path, {"sr": np.int64(rate)}):
        assert not [n for n in proto.graph.node if n.op_type == "If"]
    assert inspect_model(path, fix={"sr": np.array(rate)})["units"] == units
    assert inspect_model(path, inputs={"sr": np.array(rate)})["units"] == 4  # the If is one of them


def test_what_a_branch_returns(saved: Save) -> None:
    """Its own tensors, a constant of its own, and names the outer graph uses as well."""
    then = body(
        "then",
        [node("Neg", ["h"], ["k"]), node("Abs", ["k"], ["a"]), node("Identity", ["h"], ["b"])],
        ["a", "k", "b", "own"], [weight("own", [[1, 2, 3, 4]])],
    )  # fmt: skip
    other = body("else", [node("Identity", ["h"], [f"e{i}"]) for i in range(4)], [f"e{i}" for i in range(4)])
    second = body("second", [node("Neg", ["h"], ["k"]), node("Exp", ["k"], ["a"])], ["a"])
    third = body("third", [node("Sin", ["h"], ["k"])], ["k"])
    nodes = [node("Relu", ["x"], ["h"]), node("If", ["on"], ["p", "q", "r", "s"], then_branch=then, else_branch=other),
             node("If", ["on"], ["u"], then_branch=second, else_branch=third), node("Tanh", ["u"], ["a2"]),
             node("Sum", ["p", "q", "r", "s", "u", "a2"], ["y"])]  # fmt: skip
    path = saved(model(nodes, [x_in("N", 4), value("on", TensorProto.BOOL, [])], ["y", "q"]))
    for on in (True, False):
        check(path, {"on": np.array(on)})


def test_an_if_inside_a_loop(saved: Save) -> None:
    """The loop stays; the If in its body goes, decided by an outer constant or by one the body makes."""
    then = body("then", [node("Add", ["carried", "one"], ["t"])], ["t"])
    other = body("else", [node("Sub", ["carried", "one"], ["t"])], ["t"])
    inner = [node("Less", ["sr", "ten"], ["low"]), node("If", ["low"], ["i"], then_branch=then, else_branch=other),
             node("Identity", ["keep"], ["go"])]  # fmt: skip
    loop = helper.make_graph(
        inner, "loop",
        [value("i_", INT64, []), value("keep", TensorProto.BOOL, []), value("carried", FLOAT, None)],
        [value("go", TensorProto.BOOL, []), value("i", FLOAT, None)],
    )  # fmt: skip
    nodes = [node("Relu", ["x"], ["h"]), node("Loop", ["three", "", "h"], ["l"], body=loop), node("Neg", ["l"], ["y"])]
    weights = [weight("three", 3, "int64"), weight("ten", 10, "int64"), weight("one", 1)]
    path = saved(model(nodes, [x_in("N", 4), value("sr", INT64, [])], ["y"], weights))
    for rate in (5, 15):
        for proto in check(path, {"sr": np.int64(rate)}):
            inside = [n.op_type for top in proto.graph.node for a in top.attribute if a.name == "body" for n in a.g.node]
            assert "If" not in inside


def test_large_and_external_weights_come_along(saved: Save, tmp_path: Path) -> None:
    source = rate_model()
    data = np.arange(160 * 160, dtype=np.float32).reshape(160, 160) / 1e4
    (tmp_path / "w.bin").write_bytes(data.tobytes())
    outside = TensorProto(name="W", data_type=FLOAT, dims=[160, 160], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "w.bin"), ("offset", "0"), ("length", str(data.nbytes))):
        outside.external_data.add(key=key, value=text)
    source.graph.initializer.extend([outside, weight("V", data.T)])
    source.graph.node.extend(
        [node("MatMul", ["W", "V"], ["c"]), node("ReduceMean", ["c"], ["m"], keepdims=0), node("Add", ["i", "m"], ["z"])]
    )
    source.graph.output.append(onnx.ValueInfoProto(name="z"))
    check(saved(source), {"sr": np.int64(16000)}, parts=3)


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"rate": 1}, r"model.onnx: has no input 'rate' to give a value to"),
        ({"sr": [1, 2]}, r"input 'sr' has shape scalar, the value to fix it at has 2"),
        ({"sr": 0.5}, "does not convert to int64"),
    ],
)
def test_values_that_do_not_fit(saved: Save, tmp_path: Path, fixed: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_bundle(saved(rate_model()), tmp_path / "m.edge", fix={n: np.asarray(v) for n, v in fixed.items()})


def test_messages_name_the_users_file(saved: Save, tmp_path: Path) -> None:
    path = saved(rate_model())
    with pytest.raises(UserError, match="parts are impossible") as caught:
        build_bundle(path, tmp_path / "m.edge", parts=99, fix={"sr": np.array(16000)})
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("short", ["silero", "silero-op15"])
def test_silero_comes_apart(short: str, tmp_path: Path) -> None:
    """Fixed at 16 kHz the LSTM branch is cut like any graph; unfixed it is one unit."""
    shapes = {"silero": {"input": (1, 576), "state": (2, 1, 128)}, "silero-op15": {"input": (1, 576)}}[short]
    path, rate = model_file(short), {"sr": np.array(16000)}
    bundle = build_bundle(path, tmp_path / "m.edge", parts=8, shapes=shapes, fix=rate)
    assert len([s for s in bundle.manifest.subgraphs if s.stop == s.start + 1]) == 8
    feeds = {i.name: np.random.default_rng(1).standard_normal(bundle.manifest.shapes[i.name]).astype(i.dtype)
             for i in bundle.manifest.inputs}  # fmt: skip
    assert_same_bits(run_chain(bundle, feeds), run_source(path, feeds | rate))
