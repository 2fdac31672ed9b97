"""ONNX sources: upgraded and compared, or refused; nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

from edgeengine.conversion import Request, convert
from edgeengine.conversion.checks import check_graph
from edgeengine.conversion.compare import difference
from edgeengine.errors import UserError
from edgeengine.graph.session import first_line
from tests.graph.onnxes import model, node, session, weight, x_in


def saved(folder: Path, proto: onnx.ModelProto, name: str = "m.onnx") -> str:
    onnx.save(proto, folder / name)
    return str(folder / name)


def squeezing(batch: int | str = "batch") -> onnx.ModelProto:
    """Opset 11: Squeeze with axes as an attribute, which opset 13 made an input."""
    nodes = [node("Relu", ["x"], ["r"], name="first"), node("Squeeze", ["r"], ["y"], axes=[1], name="second")]
    return model(nodes, [x_in(batch, 1, 4)], [x_in(batch, 4, name="y")], opset=11, ir=6)


def test_old_opset_is_raised_and_names_are_kept(tmp_path: Path) -> None:
    done = convert(saved(tmp_path, squeezing()), str(tmp_path / "new.onnx"))
    proto = onnx.load(tmp_path / "new.onnx")
    assert (done.opset, proto.opset_import[0].version) == (18, 18) and proto.ir_version == done.ir_version <= 10
    assert [i.name for i in proto.graph.input] == ["x"] and [o.name for o in proto.graph.output] == ["y"]
    assert {"first", "second"} <= {n.name for n in proto.graph.node}
    assert done.free_batch and [c.batch for c in done.checks] == [1, 3, 8]
    assert [t.shape for t in done.inputs] == [("batch", 1, 4)]
    assert max(c.max_rel_diff for c in done.checks) == 0.0
    onnx.checker.check_model(proto, full_check=True)


def test_newer_opset_stays_and_one_asked_for_is_given(tmp_path: Path) -> None:
    source = saved(tmp_path, model([node("Relu", ["x"], ["y"])], [x_in("n", 2)], [x_in("n", 2, name="y")], opset=21, ir=10))
    assert convert(source, str(tmp_path / "a.onnx")).opset == 21
    assert convert(source, str(tmp_path / "b.onnx"), Request(opset=22)).opset == 22


def test_fixed_batch_is_said(tmp_path: Path) -> None:
    done = convert(saved(tmp_path, squeezing(batch=2)), str(tmp_path / "new.onnx"))
    assert not done.free_batch and [c.batch for c in done.checks] == [None] * 3
    assert any("fixes the batch" in text for text in done.notes)


def test_versions_of_the_tools_are_recorded(tmp_path: Path) -> None:
    convert(saved(tmp_path, squeezing()), str(tmp_path / "new.onnx"))
    recorded = {p.key: p.value for p in onnx.load(tmp_path / "new.onnx").metadata_props}
    assert f'"onnx": "{onnx.__version__}"' in recorded["edgeengine.converted"]
    assert str(tmp_path) not in recorded["edgeengine.converted"]


def test_weights_listed_as_inputs_stop_being_inputs(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], [x_in("n", 2), x_in(2, name="w")], ["y"], [weight("w", [1, 2])], ir=3)
    convert(saved(tmp_path, proto), str(tmp_path / "new.onnx"))
    assert [i.name for i in onnx.load(tmp_path / "new.onnx").graph.input] == ["x"]


def test_weights_outside_come_inside_whatever_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model([node("MatMul", ["x", "w"], ["y"])], [x_in("n", 64)], ["y"], [weight("w", np.ones((64, 64)))])
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = convert("../m.onnx", "small.onnx")
    assert [f.name for f in (tmp_path / "elsewhere").iterdir()] == ["small.onnx"], "one file for a small model"
    assert done.files == [str(tmp_path / "elsewhere/small.onnx")]
    (tmp_path / "m.data").unlink()
    assert session("small.onnx").run(None, {"x": np.ones((1, 64), np.float32)})[0][0, 0] == 64


def test_large_models_get_one_data_file_that_never_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeengine.conversion.write.ONE_FILE_BYTES", 1 << 10)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [x_in("n", 64)], ["y"], [weight("w", np.ones((64, 64)))])
    source = saved(tmp_path, proto)
    for _ in range(2):
        done = convert(source, str(tmp_path / "big.onnx"))
    assert [Path(f).name for f in done.files] == ["big.onnx", "big.onnx.data"]
    assert (tmp_path / "big.onnx.data").stat().st_size == 64 * 64 * 4
    assert done.bytes == sum(Path(f).stat().st_size for f in done.files)


TRAINING = {
    "BatchNormalization, training_mode": (
        [node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y", "m", "v"], name="bn", training_mode=1)], 17),
    "BatchNormalization, five outputs": (
        [node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y", "a", "b", "c", "d"], name="bn")], 11),
    "Dropout, constant input": ([node("Dropout", ["x", "ratio", "on"], ["y"], name="bn")], 17),
    "Dropout, decided at run time": (
        [node("Cast", ["flag"], ["f"], to=TensorProto.BOOL), node("Dropout", ["x", "ratio", "f"], ["y"], name="bn")], 17),
}  # fmt: skip
EXTRA = [weight("s", [1, 1]), weight("ratio", 0.5), weight("on", True, "bool"), weight("off", False, "bool"), weight("flag", 1)]


@pytest.mark.parametrize("case", TRAINING)
def test_training_form_is_refused_by_name(case: str, tmp_path: Path) -> None:
    nodes, opset = TRAINING[case]
    source = saved(tmp_path, model(nodes, [x_in("n", 2)], ["y"], EXTRA, opset=opset))
    with pytest.raises(UserError, match=r"bn \((BatchNormalization|Dropout)\) in training form"):
        convert(source, str(tmp_path / "new.onnx"))
    assert not (tmp_path / "new.onnx").exists()


def test_training_form_inside_a_body_is_found() -> None:
    nodes, _ = TRAINING["Dropout, constant input"]
    body = onnx.helper.make_graph(nodes, "b", [], [x_in("n", 2, name="y")])
    proto = model([node("If", ["c"], ["z"], then_branch=body, else_branch=body)], [x_in("n", 2)], ["z"], EXTRA)
    with pytest.raises(UserError, match="bn"):
        check_graph(proto, "m")


@pytest.mark.parametrize("off", ["initializer", "constant"])
def test_inference_form_is_kept(off: str, tmp_path: Path) -> None:
    constant = node("Constant", [], ["no"], value=weight("no", False, "bool"))
    drop = node("Dropout", ["x", "ratio", "off" if off == "initializer" else "no"], ["d"])
    norm = node("BatchNormalization", ["d", "s", "s", "s", "s"], ["y"])
    assert convert(saved(tmp_path, model([constant, drop, norm], [x_in("n", 2)], ["y"], EXTRA)), str(tmp_path / "new.onnx"))


def test_source_that_does_not_load_as_it_stands_is_refused(tmp_path: Path) -> None:
    """Two nodes of one name: what reads models node by node mends that, ONNX Runtime does not."""
    twice = model([node("Relu", ["x"], ["a"], name="r"), node("Relu", ["a"], ["y"], name="r")], [x_in(2)], [x_in(2, name="y")])
    with pytest.raises(UserError, match="two nodes with same node name"):
        convert(saved(tmp_path, twice), str(tmp_path / "new.onnx"))
    assert not (tmp_path / "new.onnx").exists()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /src/core/math/element_wise_ops.h:256 "
            "ns::Div<T>::Div(const ns::OpKernelInfo&) [with T = long int] b_data[i] != T{0} was false. Division by zero\nmore",
            "Exception during initialization: b_data[i] != T{0} was false. Division by zero",
        ),
        (
            "/src/model.cc:256 ns::Model::Model(f::ModelProto&&, const P<std::map<int, int>>&) Unsupported IR: 9",
            "Unsupported IR: 9",
        ),
        ("", "RuntimeError"),
    ],
)
def test_errors_of_the_runtime_are_told_without_places_in_its_source(message: str, said: str) -> None:
    assert first_line(RuntimeError(message)) == said


def test_layout_of_one_processor_is_refused(tmp_path: Path) -> None:
    """What ONNX Runtime saves at its highest level runs only where it was saved."""
    w = weight("w", np.ones((16, 16, 3, 3)))
    source = saved(tmp_path, model([node("Conv", ["x", "w"], ["y"])], [x_in("n", 16, 8, 8)], ["y"], [w]))
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "native.onnx")
    options.log_severity_level = 4
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    if not any(n.domain == "com.microsoft.nchwc" for n in onnx.load(tmp_path / "native.onnx").graph.node):
        pytest.skip("ONNX Runtime has no layout of its own for this processor")
    with pytest.raises(UserError, match="one kind of processor"):
        convert(str(tmp_path / "native.onnx"), str(tmp_path / "new.onnx"))


def test_failed_conversion_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path, squeezing())
    (tmp_path / "new.onnx").write_bytes(b"before")

    def wrong(name: str, reference: np.ndarray, other: np.ndarray) -> object:
        return difference(name, reference, np.asarray(other) + 0.1)

    monkeypatch.setattr("edgeengine.conversion.compare.difference", wrong)
    with pytest.raises(UserError, match="batch 1 output 'y' differs from the source"):
        convert(source, str(tmp_path / "new.onnx"))
    assert (tmp_path / "new.onnx").read_bytes() == b"before"
    assert {f.name for f in tmp_path.iterdir()} == {"m.onnx", "new.onnx"}


def test_difference() -> None:
    a = np.array([0.0, 10.0, np.nan, np.inf])
    assert difference("y", a, a).max == 0.0
    found = difference("y", a, np.array([1.0, 10.0, np.nan, np.inf]))
    assert (found.max_abs, found.max, found.rms, found.mean) == (1.0, 0.1, 0.05, 0.025)
    for other in (a[:2], np.array([0.0, 10.0, 1.0, np.inf]), np.array([0.0, 10.0, np.nan, -np.inf])):
        assert difference("y", a, other).max == np.inf
    assert difference("y", np.array(["a"]), np.array(["a"])).max == 0.0
