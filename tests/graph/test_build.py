"""Building and inspecting: whole or not at all, repeatable, honest about what was assumed, safe against a dying child."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgeengine.bundle import open_bundle
from edgeengine.errors import InternalError, UserError
from edgeengine.graph import build as build_module
from edgeengine.graph import build_bundle, child, inspect_model
from tests.graph.onnxes import FLOAT, model, node, protos, run_chain, session, value, weight, x_in

Save = Callable[..., Path]
rng = np.random.default_rng(5)


def small(**options: Any) -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "W"], ["h"]), node("Relu", ["h"], ["r"]), node("Gemm", ["r", "V"], ["y"])]
    return model(
        nodes,
        [x_in("N", 16)],
        [value("y", FLOAT, ["N", 8])],
        [weight("W", np.eye(16)), weight("V", rng.standard_normal((16, 8)))],
    )


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != "model.onnx")


def test_a_bundle_through_the_child_process(saved: Save, tmp_path: Path) -> None:
    path = saved(small())
    bundle = build_bundle(path, tmp_path / "m.edge", parts=3, preprocessing={"scale": 2})
    manifest = bundle.manifest
    assert [(s.name, s.start, s.stop) for s in manifest.subgraphs] == [
        ("s0_1", 0, 1), ("s0_2", 0, 2), ("s0_3", 0, 3), ("s1_2", 1, 2), ("s1_3", 1, 3), ("s2_3", 2, 3)
    ]  # fmt: skip
    assert manifest.whole.name == "s0_3" and manifest.whole.macs == 16 * 16 + 16 * 8
    assert manifest.whole.parameters == 16 * 16 + 16 * 8 and manifest.whole.op_counts == {
        "Gemm": 1,
        "MatMul": 1,
        "Relu": 1,
    }
    assert (manifest.name, manifest.source, manifest.shapes) == ("model", "model.onnx", {"x": (1, 16)})
    assert manifest.inputs[0].shape == ("N", 16) and manifest.outputs[0].shape == ("N", 8)
    assert manifest.exactness.runs == 4 and manifest.preprocessing == {"scale": 2}
    assert leftovers(tmp_path) == ["m.edge"] and open_bundle(tmp_path / "m.edge").hash == bundle.hash
    # The batch stays free in every part, and keeps its name for free-dimension overrides.
    dims = protos(bundle)["s1_2"].graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["N", 16]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("dtype", "least"), [("float32", 1e-45), ("float64", 5e-324)])
def test_denormal_weights_are_counted_in_the_parts_that_hold_them(
    saved: Save, tmp_path: Path, dtype: str, least: float
) -> None:  # fmt: skip
    """Zeros, normal, infinite and missing numbers are none; two parts that share a weight both count it."""
    tiny = float(np.finfo(dtype).tiny)
    odd = np.array([least, -least, tiny / 2, tiny, -tiny, 0.0, -0.0, np.inf, np.nan, 1.0])
    made = model(
        [node("Add", ["x", "odd"], ["a"]), node("Sub", ["a", "plain"], ["b"]), node("Mul", ["b", "odd"], ["y"])],
        [x_in(10, dtype=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))],
        ["y"],
        [weight("odd", odd, dtype), weight("plain", np.arange(10), dtype)],
    )
    made.graph.output[0].CopyFrom(value("y", made.graph.input[0].type.tensor_type.elem_type, [10]))
    found = {
        s.name: s.denormal_weights for s in build_bundle(saved(made), tmp_path / "m.edge", at=[["a"], ["b"]]).manifest.subgraphs
    }
    assert (found["s0_1"], found["s1_2"], found["s2_3"], found["s0_3"]) == (3, 0, 3, 3)


@pytest.mark.usefixtures("in_process")
class TestWriting:
    def test_the_same_input_gives_the_same_bytes(self, saved: Save, tmp_path: Path) -> None:
        path = saved(small())
        a, b = (build_bundle(path, tmp_path / name, parts=2) for name in ("a.edge", "b.edge"))
        assert a.hash == b.hash
        assert a.manifest.files == b.manifest.files

    def test_an_old_bundle_is_replaced_and_nothing_else_is(self, saved: Save, tmp_path: Path) -> None:
        path, out = saved(small()), tmp_path / "m.edge"
        build_bundle(path, out, parts=3)
        assert build_bundle(path, out, parts=1).manifest.segments == 1
        assert not (out / "s0_3.onnx").exists() and leftovers(tmp_path) == ["m.edge"]
        other = tmp_path / "precious"
        other.mkdir()
        (other / "thesis.txt").write_text("words")
        with pytest.raises(UserError, match="exists and is no bundle"):
            build_bundle(path, other)
        assert (other / "thesis.txt").read_text() == "words"

    @pytest.mark.parametrize("error", [KeyboardInterrupt, InternalError("no"), OSError(28, "No space left on device")])
    def test_failure_leaves_the_old_bundle_and_no_litter(
        self, saved: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | type[BaseException]
    ) -> None:
        path, out = saved(small()), tmp_path / "m.edge"
        first = build_bundle(path, out, parts=2)

        def fail(*args: object) -> None:
            raise error

        monkeypatch.setattr(build_module, "run_in_child", fail)
        with pytest.raises((KeyboardInterrupt, InternalError, UserError)):
            build_bundle(path, out, parts=3)
        assert open_bundle(out).hash == first.hash and leftovers(tmp_path) == ["m.edge"]

    def test_parts_and_at_exclude_each_other(self, saved: Save, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="not both"):
            build_bundle(saved(small()), tmp_path / "m.edge", parts=2, at=[["h"]])

    def test_weights_can_be_overridden_by_name(self, saved: Save, tmp_path: Path) -> None:
        """What a trained version does: every float weight is external, so a session takes another in its place."""
        import onnxruntime as ort

        bundle = build_bundle(saved(small()), tmp_path / "m.edge", parts=2)
        file = bundle.file(bundle.manifest.whole)
        options = ort.SessionOptions()
        zero = np.zeros((16, 16), np.float32)
        options.add_external_initializers(["W"], [ort.OrtValue.ortvalue_from_numpy(zero)])
        x = np.ones((1, 16), np.float32)
        trained = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        assert not trained.any() and session(str(file)).run(None, {"x": x})[0].any()

    def test_a_wrong_subgraph_is_caught_by_name(self, saved: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from edgeengine.graph import extract

        right = extract.pinned

        def wrong(nodes: Any, pins: Any) -> Any:
            for n in right(nodes, pins):
                if n.op_type == "Relu":
                    n = node("Abs", n.input, n.output)
                yield n

        monkeypatch.setattr(extract, "pinned", wrong)
        with pytest.raises(InternalError, match=r"subgraph s0_2: tensor 'r' is not bit-equal"):
            build_bundle(saved(small()), tmp_path / "m.edge", at=[["h"], ["r"]])
        assert leftovers(tmp_path) == []


@pytest.mark.usefixtures("in_process")
class TestInputs:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"shapes": {"q": (1, 16)}}, r"has no input 'q' to give a shape to; known are 'x'"),
            ({"shapes": {"x": (1, 16, 1)}}, "input 'x' has 2 dimensions, the shape 1x16x1 has 3"),
            ({"shapes": {"x": (1, 17)}}, "dimension 1 of input 'x' is 16, the shape 1x17 says 17"),
            ({"inputs": {"q": np.zeros(1)}}, "has no input 'q' to give a value to"),
            ({"inputs": {"x": np.array([["a"] * 16])}}, "does not convert to float32"),
            ({"shapes": {"x": (2, 16)}, "inputs": {"x": np.zeros((3, 16))}}, "two sizes"),
        ],
    )
    def test_wrong_shapes_and_values(self, saved: Save, tmp_path: Path, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UserError, match=message):
            build_bundle(saved(small()), tmp_path / "m.edge", **options)

    def test_a_given_shape_is_used_and_stays_the_only_batch(self, saved: Save, tmp_path: Path) -> None:
        manifest = build_bundle(saved(small()), tmp_path / "m.edge", shapes={"x": (3, 16)}).manifest
        assert manifest.shapes == {"x": (3, 16)} and manifest.exactness.runs == 3
        assert manifest.inputs[0].shape == ("N", 16)

    def test_a_value_selects_what_runs(self, saved: Save, tmp_path: Path) -> None:
        """Gather by an index input: only the given index is in range."""
        nodes = [node("Gather", ["x", "which"], ["h"], axis=1), node("Relu", ["h"], ["y"])]
        source = model(nodes, [x_in("N", 1), value("which", onnx.TensorProto.INT64, [])], ["y"])
        told: list[str] = []
        path = saved(source)
        build_bundle(path, tmp_path / "m.edge", inputs={"which": np.array(0)}, progress=lambda t, s: told.append(t))
        assert told[0] == "reading the model" and "assumed x=1x1" in told
        with pytest.raises(
            UserError, match=r"does not run with .*--input NAME=VALUE \(inputs: x float32\[N,1\], which int64\[\]\)"
        ):
            build_bundle(path, tmp_path / "m.edge", inputs={"which": np.array(7)})

    def test_sizes_are_found_by_trying(self, saved: Save, tmp_path: Path) -> None:
        """Only a multiple of 48 can be reshaped so."""
        nodes = [node("Reshape", ["x", "to"], ["h"]), node("Neg", ["h"], ["y"])]
        source = model(nodes, [x_in("batch", "length")], ["y"], [weight("to", [-1, 48], "int64")])
        told: list[str] = []
        bundle = build_bundle(saved(source), tmp_path / "m.edge", progress=lambda t, s: told.append(t))
        length = bundle.manifest.shapes["x"][1]
        assert length % 48 == 0 and f"assumed x=1x{length}" in told

    def test_a_batch_that_runs_only_alone(self, saved: Save, tmp_path: Path) -> None:
        nodes = [node("Reshape", ["x", "to"], ["h"]), node("Neg", ["h"], ["y"])]
        source = model(nodes, [x_in("N", 6)], ["y"], [weight("to", [1, 6], "int64")])
        assert build_bundle(saved(source), tmp_path / "m.edge", parts=2).manifest.exactness.runs == 3

    def test_nan_equals_nan(self, saved: Save, tmp_path: Path) -> None:
        nodes = [node("Log", ["x"], ["h"]), node("Exp", ["h"], ["y"])]
        bundle = build_bundle(saved(model(nodes, [x_in("N", 64)], ["y"])), tmp_path / "m.edge", parts=2)
        assert np.isnan(run_chain(bundle, {"x": np.full((1, 64), -1, np.float32)})["y"]).all()

    def test_a_model_the_runtime_refuses(self, saved: Save, tmp_path: Path) -> None:
        path = saved(model([node("Frobnicate", ["x"], ["y"], domain="org.x")], [x_in("N", 4)], ["y"], domains={"org.x": 1}))
        with pytest.raises(UserError, match="ONNX Runtime cannot load it") as caught:
            build_bundle(path, tmp_path / "m.edge")
        assert "\n" not in str(caught.value)
        found = inspect_model(path)
        assert "cannot load it" in str(found["run_error"]) and found["op_counts"] == {"org.x.Frobnicate": 1}


@pytest.mark.parametrize(
    ("code", "stderr", "message"),
    [
        (-signal.SIGSEGV, b"", "died of SIGSEGV"),
        (-signal.SIGKILL, b"", r"SIGKILL \(out of memory\?\)"),
        (1, b"a\nMemoryError", "failed: MemoryError"),
    ],
)
def test_a_dying_child_is_the_models_error(
    saved: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, stderr: bytes, message: str
) -> None:
    monkeypatch.setattr(child.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, code, b"", stderr))
    with pytest.raises(UserError, match=message):
        build_bundle(saved(small()), tmp_path / "m.edge")
    assert leftovers(tmp_path) == []


@pytest.mark.usefixtures("in_process")
def test_inspect_is_plain_json(saved: Save) -> None:
    found = inspect_model(saved(small()))
    assert json.loads(json.dumps(found)) == found
    assert (found["nodes"], found["units"], found["most_parts"], found["macs"]) == (3, 3, 3, 384)
    assert found["single_tensor_cut"] is True and found["run_error"] is None and found["unknown_ops"] == []
    assert [f["tensors"][0]["name"] for f in found["frontiers"]] == ["h", "r"]  # type: ignore[attr-defined]
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["N", 16]}]


@pytest.mark.parametrize("manifest", ['{"manifest_version": 3}', '{"segments": 1, "files": {}}', "not json"])
def test_folder_with_anything_but_a_bundle_in_it_is_never_replaced(saved: Save, tmp_path: Path, manifest: str) -> None:
    (tmp_path / "victim/sub").mkdir(parents=True)
    (tmp_path / "victim/manifest.json").write_text(manifest)
    (tmp_path / "victim/sub/work.js").write_text("mine")
    with pytest.raises(UserError, match="is no bundle"):
        build_bundle(saved(small()), tmp_path / "victim")
    assert (tmp_path / "victim/sub/work.js").read_text() == "mine"
