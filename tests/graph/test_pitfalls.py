"""One test per known fault of splitting tools, on the smallest model that shows it. Every build verifies itself bit by
bit; the oracle here runs the parts once more, independently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.graph import build_bundle
from tests.graph.onnxes import (
    FLOAT,
    assert_same_bits,
    model,
    node,
    protos,
    run_chain,
    run_source,
    session,
    value,
    weight,
    x_in,
)

pytestmark = pytest.mark.usefixtures("in_process")
Save = Callable[..., Path]
rng = np.random.default_rng(7)
X = rng.standard_normal((2, 4)).astype(np.float32)


def build(path: Path, **options: object) -> Bundle:
    return build_bundle(path, path.with_suffix(".edge"), **options)  # type: ignore[arg-type]


def check(path: Path, feeds: dict[str, np.ndarray], **options: object) -> Bundle:
    bundle = build(path, **options)
    assert bundle.manifest.exactness.bit_equal_unoptimized
    assert_same_bits(run_chain(bundle, feeds), run_source(path, feeds))
    return bundle


def if_model(nested: bool) -> onnx.ModelProto:
    """x -> Relu h; If(sum(h) > 0): Mul(h, W) * Exp(x), else Neg(h). W is read by the body only, and so is Exp(x)."""
    then_nodes = [node("Mul", ["h", "W"], ["hw"]), node("Mul", ["hw", "ex"], ["t"])]
    then = helper.make_graph(then_nodes, "then", [], [value("t", FLOAT, None)])
    other = helper.make_graph([node("Neg", ["h"], ["e"])], "else", [], [value("e", FLOAT, None)])
    if nested:
        inner = node("If", ["cond"], ["t2"], then_branch=then, else_branch=other)
        then = helper.make_graph([inner], "outer_then", [], [value("t2", FLOAT, None)])
        other = helper.make_graph([node("Neg", ["h"], ["e2"])], "outer_else", [], [value("e2", FLOAT, None)])
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("ReduceSum", ["h"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["cond"]),
        node("Exp", ["x"], ["ex"]),
        node("If", ["cond"], ["r"], then_branch=then, else_branch=other),
        node("Abs", ["r"], ["y"]),
    ]
    return model(nodes, [x_in("N", 4)], ["y"], [weight("W", rng.standard_normal(4)), weight("zero", 0)])


@pytest.mark.parametrize("nested", [False, True])
def test_s1_names_captured_by_bodies_are_inputs(saved: Save, nested: bool) -> None:
    path = saved(if_model(nested))
    for feeds in ({"x": X}, {"x": -np.abs(X)}):
        bundle = check(path, feeds, at=[["ex", "cond"]])
    second = bundle.manifest.subgraph("s1_2")
    assert {i.name for i in second.inputs} == {"h", "cond", "ex"}
    assert {t.name for t in protos(bundle)["s1_2"].graph.initializer} == {"W"}
    check(path, {"x": X}, parts=6)
    with pytest.raises(UserError, match=r"7 parts are impossible, the most is 6: unit If #4 \(\d+ nodes in its bodies\)"):
        build(path, parts=7)


def test_s1_a_name_only_a_body_outputs_is_captured(saved: Save) -> None:
    then = helper.make_graph([], "then", [], [value("a", FLOAT, None)])
    other = helper.make_graph([], "else", [], [value("b", FLOAT, None)])
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Exp", ["x"], ["b"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    path = saved(model(nodes, [x_in("N", 4)], ["y"], [weight("zero", 0)]))
    bundle = build(path, parts=5)
    expected = -X if X.sum() > 0 else np.exp(X)
    np.testing.assert_allclose(run_chain(bundle, {"x": X})["y"], expected, rtol=1e-6)
    assert {"a", "b"} <= {i.name for i in bundle.manifest.subgraph("s4_5").inputs}


@pytest.mark.parametrize(("opset", "ir"), [(11, 3), (11, 8), (25, 12)])
def test_s3_ir_version_and_opsets_are_the_sources(saved: Save, opset: int, ir: int) -> None:
    axes = opset < 13
    squeeze = node("Squeeze", ["h"], ["y"], axes=[0]) if axes else node("Squeeze", ["h", "axes"], ["y"])
    weights = [] if axes else [weight("axes", [0], "int64")]
    source = model([node("Relu", ["x"], ["h"]), squeeze], [x_in(1, 4)], ["y"], weights, opset, ir, domains={"ai.onnx.ml": 2})
    bundle = check(saved(source), {"x": X[:1]}, parts=2)
    for proto in protos(bundle).values():
        assert proto.ir_version == ir
        assert {(o.domain, o.version) for o in proto.opset_import} == {("", opset), ("ai.onnx.ml", 2)}
    assert (bundle.manifest.ir_version, bundle.manifest.opset) == (ir, {"": opset, "ai.onnx.ml": 2})


def test_s5_a_cut_where_static_inference_is_silent(saved: Save) -> None:
    nodes = [
        node("Gelu", ["x"], ["a"], domain="com.microsoft"),
        node("Relu", ["a"], ["b"]),
        node("Relu", ["b"], ["y"]),
    ]
    path = saved(model(nodes, [x_in("N", 4)], ["y"], domains={"com.microsoft": 1}))
    bundle = check(path, {"x": X}, at=[["b"]])
    assert bundle.manifest.subgraph("s1_2").inputs[0].shape == (1, 4)
    boundary = protos(bundle)["s1_2"].graph.input[0].type.tensor_type
    assert boundary.elem_type == FLOAT and len(boundary.shape.dim) == 2


def test_s5_baked_in_value_info_does_not_fix_the_batch(saved: Save) -> None:
    source = model([node("Relu", ["x"], ["b"]), node("Neg", ["b"], ["y"])], [x_in("N", 4)], ["y"])
    source.graph.value_info.append(value("b", FLOAT, [1, 4]))
    assert check(saved(source), {"x": X}, parts=2).manifest.exactness.runs == 4


def test_s6_a_tensor_used_inside_and_later_is_an_output(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["t1"]), node("Sigmoid", ["t1"], ["t2"]), node("Add", ["t1", "t2"], ["y"])]
    bundle = check(saved(model(nodes, [x_in("N", 4)], ["y"])), {"x": X}, at=[["t2"]])
    assert [o.name for o in bundle.manifest.subgraph("s0_1").outputs] == ["t1", "t2"]


def test_s6_some_outputs_of_a_node_cross(saved: Save) -> None:
    nodes = [
        node("Split", ["x"], ["a", "b", "c"], axis=1),
        node("Relu", ["a"], ["r"]),
        node("Neg", ["c"], ["n"]),
        node("Add", ["r", "n"], ["y"]),
    ]
    source = model(nodes, [x_in("N", 6)], ["y"], opset=13)
    bundle = check(saved(source), {"x": np.ones((1, 6), np.float32)}, at=[["r"]])
    assert [o.name for o in bundle.manifest.subgraph("s0_1").outputs] == ["c", "r"]


def test_s6_a_graph_output_made_early_and_read_later(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["early"]), node("Neg", ["early"], ["h"]), node("Add", ["h", "early"], ["y"])]
    bundle = check(saved(model(nodes, [x_in("N", 4)], ["y", "early"])), {"x": X}, parts=3)
    assert [o.name for o in bundle.manifest.subgraph("s0_1").outputs] == ["early"]
    assert [o.name for o in bundle.manifest.subgraph("s1_3").outputs] == ["y"]


def test_s7_absent_inputs_and_repeated_node_names(saved: Save) -> None:
    nodes = [
        node("Clip", ["x", "", "one"], ["a"], name="n"),
        node("Clip", ["a", "", "half"], ["b"], name="n"),
        node("Dropout", ["b"], ["c", ""]),
        node("Relu", ["c"], ["y"]),
    ]
    path = saved(model(nodes, [x_in("N", 4)], ["y"], [weight("one", 1), weight("half", 0.5)]))
    for parts in (2, 3, 4):
        bundle = build(path, parts=parts)
        np.testing.assert_array_equal(run_chain(bundle, {"x": X})["y"], np.clip(X, 0, 0.5))
        assert all(t.name for s in bundle.manifest.subgraphs for t in (*s.inputs, *s.outputs))


def test_s8_inputs_follow_from_the_cut(saved: Save) -> None:
    path = saved(
        model([node("Relu", ["x"], ["a"]), node("Add", ["a", "z"], ["y"])], [x_in("N", 4), x_in("N", 4, name="z")], ["y"])
    )
    notes: list[str] = []
    bundle = check(path, {"x": X, "z": X}, at=[["a"]], progress=lambda text, share: notes.append(text))
    assert [i.name for i in bundle.manifest.subgraph("s1_2").inputs] == ["z", "a"]
    assert not [n for n in notes if "also passes" in n]


def test_s8_what_crosses_beyond_the_listed_tensors_is_reported(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["t1"]), node("Sigmoid", ["t1"], ["t2"]), node("Add", ["t1", "t2"], ["y"])]
    notes: list[str] = []
    build(saved(model(nodes, [x_in("N", 4)], ["y"])), at=[["t2"]], progress=lambda text, share: notes.append(text))
    assert "the cut at t2 also passes t1" in notes


def test_s9_weights_never_pass_through_a_proto(saved: Save, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A 64 KB weight under a limit of 8 KB: every proto we serialize stays below it."""
    big = rng.standard_normal((128, 128)).astype(np.float32)
    (tmp_path / "data.bin").write_bytes(b"\0" * 100 + big.tobytes())
    external = TensorProto(name="W", data_type=FLOAT, dims=[128, 128], data_location=TensorProto.EXTERNAL)
    for key, text in (("location", "data.bin"), ("offset", "100")):
        external.external_data.add(key=key, value=text)
    source = model([node("MatMul", ["x", "W"], ["h"]), node("MatMul", ["h", "W"], ["y"])], [x_in("N", 128)], ["y"], [external])
    path = saved(source)
    serialize = onnx.ModelProto.SerializeToString
    sizes: list[int] = []

    def limited(self: onnx.ModelProto, **options: bool) -> bytes:
        raw = serialize(self, **options)
        sizes.append(len(raw))
        assert len(raw) < 8192, "a proto over the size limit"
        return raw

    monkeypatch.setattr(onnx.ModelProto, "SerializeToString", limited)
    bundle = check(path, {"x": rng.standard_normal((2, 128)).astype(np.float32)}, parts=2)
    assert sizes
    assert (bundle.path / "weights/base.bin").read_bytes() == big.tobytes()  # shared by both parts, and there once


def test_s10_rebuilding_and_moving(saved: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(
        model(
            [node("MatMul", ["x", "W"], ["h"]), node("Relu", ["h"], ["y"])],
            [x_in("N", 64)],
            ["y"],
            [weight("W", np.eye(64))],
        )
    )
    first, second = build(path, parts=2), build(path, parts=2)
    assert (second.path / "weights/base.bin").stat().st_size == 64 * 64 * 4
    assert first.hash == second.hash
    moved = second.path.rename(tmp_path / "elsewhere.edge")
    monkeypatch.chdir("/")
    x = np.ones((1, 64), np.float32)
    np.testing.assert_array_equal(session(str(moved / "s0_2.onnx")).run(None, {"x": x})[0], x)


def test_s10_external_data_in_bodies_and_attributes(saved: Save, tmp_path: Path) -> None:
    (tmp_path / "d.bin").write_bytes(np.arange(8, dtype=np.float32).tobytes())

    def external(name: str, offset: int) -> TensorProto:
        tensor = TensorProto(name=name, data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, text in (("location", "d.bin"), ("offset", str(offset)), ("length", "16")):
            tensor.external_data.add(key=key, value=text)
        return tensor

    then = helper.make_graph([node("Mul", ["h", "bw"], ["t"])], "then", [], [value("t", FLOAT, None)], [external("bw", 0)])
    other_nodes = [node("Constant", [], ["k"], value=external("", 16)), node("Add", ["h", "k"], ["e"])]
    other = helper.make_graph(other_nodes, "else", [], [value("e", FLOAT, None)])
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    path = saved(model(nodes, [x_in("N", 4)], ["y"], [weight("zero", 0)]))
    for feeds in ({"x": np.abs(X)}, {"x": -np.abs(X)}):
        bundle = check(path, feeds, parts=2)
    assert {t.name for t in protos(bundle)["s0_2"].graph.initializer} == {"zero"}


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([node("Relu", ["x"], ["h"]), node("Neg", ["h"], ["y"])], ["y", "x"]),  # an input passed through
        ([node("Relu", ["x"], ["h"]), node("Add", ["h", "W"], ["y"])], ["W", "y"]),  # an initializer as output
        ([node("Relu", ["x"], ["h"]), node("Neg", ["h"], ["y"])], ["y", "y"]),  # the same output twice
        (
            [node("Neg", ["W"], ["k"]), node("Relu", ["x"], ["h"]), node("Add", ["h", "k"], ["y"])],
            ["y", "k"],
        ),  # a constant
        (
            [node("Constant", [], ["k"], value_float=2.0), node("Relu", ["x"], ["h"]), node("Mul", ["h", "k"], ["y"])],
            ["k", "y"],
        ),
    ],
)
def test_s12_outputs_that_no_run_time_node_makes(saved: Save, nodes: list[onnx.NodeProto], outputs: list[str]) -> None:
    source = model(nodes, [x_in("N", 4)], outputs, [weight("W", [1, 2, 3, 4])])
    bundle = check(saved(source), {"x": X}, parts=2)
    assert [o.name for o in bundle.manifest.outputs] == outputs
    assert len(bundle.manifest.whole.outputs) == len(set(outputs))


def test_s12_a_graph_of_constants(saved: Save) -> None:
    bundle = check(saved(model([node("Neg", ["W"], ["k"])], [x_in("N", 4)], ["k"], [weight("W", [1, 2])])), {"x": X})
    assert bundle.manifest.segments == 1 and bundle.manifest.whole.inputs == ()


@pytest.mark.parametrize("ir", [3, 10])
def test_s15_initializers_listed_as_inputs_are_no_inputs(saved: Save, ir: int) -> None:
    nodes = [node("Add", ["x", "W"], ["h"]), node("MatMul", ["h", "V"], ["y"])]
    inputs = [x_in("N", 4), x_in(4, name="W"), x_in(4, 4, name="V")]
    path = saved(model(nodes, inputs, ["y"], [weight("W", X[0]), weight("V", rng.standard_normal((4, 4)))], ir=ir))
    bundle = check(path, {"x": X}, parts=2)
    assert [i.name for i in bundle.manifest.inputs] == ["x"]
    assert [i.name for i in protos(bundle)["s1_2"].graph.input] == ["h"]


def test_s15_an_old_model_with_an_unused_initializer(saved: Save) -> None:
    inputs = [x_in("N", 4), x_in(4, name="W"), x_in(4, name="unused")]
    weights = [weight("W", X[0]), weight("unused", X[0])]
    path = saved(model([node("Add", ["x", "W"], ["h"]), node("Neg", ["h"], ["y"])], inputs, ["y"], weights, ir=3))
    assert {t.name for t in protos(check(path, {"x": X}, parts=2))["s0_2"].graph.initializer} == {"W"}


def test_local_functions_used_only_in_a_body_are_kept(saved: Save) -> None:
    inner = helper.make_function("f", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)])
    outer_nodes = [node("Twice", ["a"], ["c"], domain="f"), node("Neg", ["c"], ["b"])]
    outer = helper.make_function(
        "f", "Outer", ["a"], ["b"], outer_nodes, [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    )
    unused = helper.make_function("f", "Unused", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    then = helper.make_graph([node("Outer", ["h"], ["t"], domain="f")], "then", [], [value("t", FLOAT, None)])
    other = helper.make_graph([node("Neg", ["h"], ["e"])], "else", [], [value("e", FLOAT, None)])
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    source = model(nodes, [x_in("N", 4)], ["y"], [weight("zero", 0)], functions=[unused, inner, outer], domains={"f": 1})
    bundle = check(saved(source), {"x": np.abs(X)}, parts=4)
    assert [f.name for f in protos(bundle)["s3_4"].functions] == ["Twice", "Outer"]
    assert not protos(bundle)["s0_1"].functions


def test_sequences_stay_in_one_unit(saved: Save) -> None:
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("SplitToSequence", ["h"], ["seq"], axis=1),
        node("Neg", ["h"], ["n"]),
        node("ConcatFromSequence", ["seq"], ["c"], axis=1),
        node("Add", ["c", "n"], ["y"]),
    ]
    path = saved(model(nodes, [x_in("N", 4)], ["y"]))
    bundle = check(path, {"x": X}, parts=4)
    assert "seq" not in {t.name for s in bundle.manifest.subgraphs for t in (*s.inputs, *s.outputs)}
    with pytest.raises(UserError, match=r"the most is 4: unit SplitToSequence #1 to ConcatFromSequence #3"):
        build(path, parts=5)


def test_a_sequence_as_output_is_refused_by_name(saved: Save) -> None:
    path = saved(model([node("SplitToSequence", ["x"], ["seq"], axis=1)], [x_in("N", 4)], ["seq"]))
    with pytest.raises(UserError, match=r"output 'seq' is a seq\(tensor\(float\)\)"):
        build(path)


@pytest.mark.parametrize("parts", [2, 3, 5, 9])
def test_float16_is_rounded_at_every_boundary(saved: Save, parts: int) -> None:
    half = TensorProto.FLOAT16
    nodes, current = [node("Cast", ["x"], ["c"], to=half)], "c"
    for i in range(4):
        nodes += [node("MatMul", [current, f"w{i}"], [f"m{i}"]), node("Tanh", [f"m{i}"], [f"t{i}"])]
        current = f"t{i}"
    weights = [weight(f"w{i}", rng.standard_normal((16, 16)), "float16") for i in range(4)]
    path = saved(model([*nodes, node("Softmax", [current], ["y"])], [x_in("N", 16)], ["y"], weights))
    assert build(path, parts=parts).manifest.exactness.bit_equal_unoptimized


def test_every_dtype_crosses(saved: Save) -> None:
    """Bool, integers, double, strings, rank 0 and empty tensors, in one model."""
    nodes = [
        node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        node("Cast", ["x"], ["i8"], to=TensorProto.INT8),
        node("Cast", ["x"], ["u16"], to=TensorProto.UINT16),
        node("Greater", ["x", "zero"], ["b"]),
        node("Cast", ["i8"], ["text"], to=TensorProto.STRING),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Slice", ["x", "from", "from"], ["none"]),
        node("Identity", ["d"], ["y0"]),
        node("Identity", ["u16"], ["y1"]),
        node("Not", ["b"], ["y2"]),
        node("Identity", ["text"], ["y3"]),
        node("Neg", ["s"], ["y4"]),
        node("Neg", ["none"], ["y5"]),
        node("Neg", ["i8"], ["y6"]),
    ]
    outputs = [f"y{i}" for i in range(7)]
    path = saved(model(nodes, [x_in("N", 4)], outputs, [weight("zero", 0), weight("from", [0], "int64")]))
    bundle = check(path, {"x": np.abs(X)}, at=[["d", "i8", "u16", "b", "text", "s", "none"]])
    types = {i.name: (i.dtype, i.shape) for i in bundle.manifest.subgraph("s1_2").inputs}
    assert types == {
        "d": ("float64", (1, 4)),
        "i8": ("int8", (1, 4)),
        "u16": ("uint16", (1, 4)),
        "b": ("bool", (1, 4)),
        "text": ("str", (1, 4)),
        "s": ("float32", ()),
        "none": ("float32", (0, 4)),
    }


def test_string_inputs(saved: Save) -> None:
    path = saved(
        model(
            [node("Identity", ["x"], ["h"]), node("Identity", ["h"], ["y"])],
            [x_in("N", dtype=TensorProto.STRING)],
            ["y"],
        )
    )
    check(path, {"x": np.array(["a", "é"], object)}, parts=2)


def test_data_that_shape_inference_reads_stays_inline(saved: Save) -> None:
    nodes = [
        node("Relu", ["x"], ["h"]),
        node("Resize", ["h", "roi", "scales"], ["r"], coordinate_transformation_mode="tf_crop_and_resize"),
        node("Range", ["start", "limit", "delta"], ["k"]),
        node("Mul", ["r", "half"], ["m"]),
        node("Add", ["m", "k"], ["y"]),
    ]
    weights = [
        weight("roi", [0, 0, 0, 0, 1, 1, 1, 1]),
        weight("scales", [1, 1, 2, 2]),
        weight("start", 0),
        weight("limit", 4),
        weight("delta", 1),
        weight("half", 0.5),
    ]
    path = saved(model(nodes, [x_in("N", 1, 2, 2)], ["y"], weights))
    bundle = check(path, {"x": np.ones((1, 1, 2, 2), np.float32)}, parts=4)
    external = {t.name for t in protos(bundle)["s0_4"].graph.initializer if t.data_location == TensorProto.EXTERNAL}
    assert external == {"half"}


def test_quantization_annotations_and_metadata_are_kept(saved: Save) -> None:
    source = model([node("Relu", ["x"], ["h"]), node("Neg", ["h"], ["y"])], [x_in("N", 4)], ["y"], [weight("h_scale", 0.5)])
    annotation = source.graph.quantization_annotation.add(tensor_name="h")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="h_scale")
    source.metadata_props.add(key="author", value="us")
    bundle = check(saved(source), {"x": X}, parts=2)
    for proto in protos(bundle).values():
        assert [a.tensor_name for a in proto.graph.quantization_annotation] == ["h"]
        assert [t.name for t in proto.graph.initializer] == ["h_scale"]
        assert [(p.key, p.value) for p in proto.metadata_props] == [("author", "us")]


def test_random_operators_are_refused(saved: Save) -> None:
    path = saved(
        model(
            [node("RandomNormalLike", ["x"], ["r"], name="noise"), node("Add", ["x", "r"], ["y"])],
            [x_in("N", 4)],
            ["y"],
        )
    )
    with pytest.raises(UserError, match="RandomNormalLike 'noise' draws random numbers"):
        build(path)
