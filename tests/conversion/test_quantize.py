"""int8 and float16: right on processors without VNNI, measured on samples, refused past the limit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgeengine.conversion import Request, convert
from edgeengine.conversion.samples import read_samples
from edgeengine.errors import UserError
from tests.conversion.test_convert import saved
from tests.graph.onnxes import FLOAT, model, node, session, value, weight, x_in
from tests.models import model_file

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 64)).astype(np.float32)


def linear(w: np.ndarray, batch: int | str = "n") -> onnx.ModelProto:
    """The last node is quantized, and its output is the model's."""
    return model([node("MatMul", ["x", "w"], ["y"])], [x_in(batch, w.shape[0])], [x_in(batch, w.shape[1], name="y")],
                 [weight("w", w)])  # fmt: skip


def saturating_sum(weights: np.ndarray, activations: np.ndarray) -> np.ndarray:
    """u8 [k] times s8 [k, n] as AVX2's vpmaddubsw does it: neighbouring products are added in 16 bits, saturating."""
    products = activations.astype(np.int64)[:, None] * weights.astype(np.int64)
    return np.asarray(np.clip(products[0::2] + products[1::2], -(1 << 15), (1 << 15) - 1).sum(0))


def int8_weights(file: Path) -> list[np.ndarray]:
    found = [numpy_helper.to_array(t) for t in onnx.load(file).graph.initializer if t.data_type == onnx.TensorProto.INT8]
    return [w for w in found if w.ndim > 1]


def test_weights_are_safe_without_vnni(tmp_path: Path) -> None:
    """All-positive weights at full activations, the worst there is: no pair of products leaves 16 bits."""
    w, x = RNG.random((64, 8)), np.ones((8, 64), np.float32)
    done = convert(saved(tmp_path, linear(w)), str(tmp_path / "q.onnx"), Request(quantize="int8-qdq", calibration={"x": x}))
    assert done.quantized is not None and done.quantized.accuracy.drop < 1
    (q,) = int8_weights(tmp_path / "q.onnx")
    assert 60 <= np.abs(q.astype(int)).max() <= 64
    full = np.full(64, 255, np.uint8)
    np.testing.assert_array_equal(saturating_sum(q, full), full.astype(np.int64) @ q.astype(np.int64))
    unsafe = np.clip(2 * q.astype(int), -127, 127)
    assert (saturating_sum(unsafe, full) < full.astype(np.int64) @ unsafe).all(), "eight bits would saturate"


def test_output_of_the_model_is_calibrated_and_batch_stays_free(tmp_path: Path) -> None:
    w = RNG.standard_normal((64, 8))
    request = Request(quantize="int8-qdq", calibration={"x": X})
    done = convert(saved(tmp_path, linear(w)), str(tmp_path / "q.onnx"), request)
    proto = onnx.load(tmp_path / "q.onnx")
    assert proto.graph.node[-1].op_type == "DequantizeLinear"
    assert [t.shape[0] for t in (*done.inputs, *done.outputs)] == ["n", "n"]
    assert any("calibrated with" in text for text in done.notes)
    assert done.quantized is not None and done.quantized.accuracy.criterion == "error"
    assert 0 < done.quantized.accuracy.drop < 1


def test_fixed_batch_takes_so_many_rows(tmp_path: Path) -> None:
    source = saved(tmp_path, linear(RNG.standard_normal((64, 8)), batch=5))
    done = convert(source, str(tmp_path / "q.onnx"), Request(quantize="int8-qdq", calibration={"x": X}))
    assert done.quantized is not None and done.quantized.accuracy.samples == 6, "32 rows are six runs of five"


def depthwise() -> onnx.ModelProto:
    """Two channels, one a thousand times the other; the small one decides the result. Per-tensor scales lose it."""
    w = np.concatenate([np.full((1, 1, 3), 1.0), np.full((1, 1, 3), 1000.0)])
    nodes = [
        node("Conv", ["x", "w"], ["c"], group=2, kernel_shape=[3], name="depthwise"),
        node("Relu", ["c"], ["r"]), node("Mul", ["r", "s"], ["m"]), node("ReduceSum", ["m", "axes"], ["y"], keepdims=0),
    ]  # fmt: skip
    weights = [weight("w", w), weight("s", [[1.0], [0.0]]), weight("axes", [2], "int64")]
    return model(nodes, [x_in("n", 2, 16)], [x_in("n", 2, name="y")], weights)


def test_collapse_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    calibration = {"x": RNG.standard_normal((32, 2, 16)).astype(np.float32)}
    source = saved(tmp_path, depthwise())
    with pytest.raises(UserError, match=r"outputs err by .* more than --max-drop 1") as caught:
        convert(source, str(tmp_path / "q.onnx"), Request(quantize="int8-qdq", calibration=calibration))
    assert "\n" not in str(caught.value)
    assert {f.name for f in tmp_path.iterdir()} == {"m.onnx"}
    assert convert(source, str(tmp_path / "q.onnx"), Request(quantize="int8-qdq", calibration=calibration, max_drop=100))


def test_costly_nodes_stay_float_and_are_named(tmp_path: Path) -> None:
    """Four layers, one of which holds a channel that int8 activations cannot carry beside the others."""
    nodes, weights, last = [], [], "x"
    for k in range(4):
        w = RNG.standard_normal((64, 64)) / 8
        weights.append(weight(f"w{k}", w))
        nodes.append(node("MatMul", [last, f"w{k}"], [f"y{k}"], name=f"layer{k}"))
        last = f"y{k}"
    source = saved(tmp_path, model(nodes, [x_in("n", 64)], [x_in("n", 64, name="y3")], weights))
    whole = convert(source, str(tmp_path / "a.onnx"), Request(quantize="int8-qdq", calibration={"x": X}, max_drop=100))
    assert whole.quantized is not None and whole.quantized.kept_float == []
    limit = 0.97 * whole.quantized.accuracy.drop
    mixed = convert(source, str(tmp_path / "b.onnx"), Request(quantize="int8-qdq", calibration={"x": X}, max_drop=limit))
    assert mixed.quantized is not None and len(mixed.quantized.kept_float) == 1
    assert mixed.quantized.accuracy.drop <= limit
    assert len(int8_weights(tmp_path / "b.onnx")) == 3 == len(int8_weights(tmp_path / "a.onnx")) - 1


def test_labels_make_accuracy_the_criterion(tmp_path: Path) -> None:
    w = RNG.standard_normal((64, 4))
    labels = (X @ w).argmax(axis=1)
    labels[:8] = (labels[:8] + 1) % 4
    request = Request(quantize="int8-qdq", calibration={"x": X}, evaluation={"x": X, "label": labels}, max_drop=100)
    found = convert(saved(tmp_path, linear(w)), str(tmp_path / "q.onnx"), request).quantized
    assert found is not None and found.accuracy.float_accuracy == 75.0
    assert found.accuracy.criterion == "accuracy" and found.accuracy.accuracy is not None
    assert found.accuracy.drop == max(75.0 - found.accuracy.accuracy, 0)


def test_float16_halves_the_weights_and_keeps_inputs_and_outputs(tmp_path: Path) -> None:
    source = saved(tmp_path, linear(RNG.standard_normal((64, 64))))
    done = convert(source, str(tmp_path / "h.onnx"), Request(quantize="fp16", evaluation={"x": X}))
    assert [t.dtype for t in (*done.inputs, *done.outputs)] == ["float32", "float32"]
    assert done.quantized is not None and done.bytes < 0.6 * done.quantized.float_bytes
    assert 0 < done.quantized.accuracy.drop < 0.1
    onnx.checker.check_model(onnx.load(tmp_path / "h.onnx"), full_check=True)


def test_float16_of_what_holds_no_float32_is_refused(tmp_path: Path) -> None:
    for dtype in (onnx.TensorProto.INT64, onnx.TensorProto.FLOAT16):
        proto = model([node("Add", ["x", "x"], ["y"])], [x_in("n", 4, dtype=dtype)], [x_in("n", 4, name="y", dtype=dtype)])
        with pytest.raises(UserError, match="nothing in float32"):
            convert(saved(tmp_path, proto), str(tmp_path / "h.onnx"), Request(quantize="fp16"))


@pytest.mark.parametrize(
    ("dtype", "values"),
    [(onnx.TensorProto.FLOAT, np.full((3, 4), 1e300)), (onnx.TensorProto.INT64, np.full((3, 4), 0.5)),
     (onnx.TensorProto.INT64, np.full((3, 4), 2**64 - 1, np.uint64)), (onnx.TensorProto.BOOL, np.full((3, 4), 2))],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_samples_that_the_input_cannot_hold_are_refused(tmp_path: Path, dtype: int, values: np.ndarray) -> None:
    file = saved(
        tmp_path, model([node("Identity", ["x"], ["y"])], [x_in("n", 4, dtype=dtype)], [x_in("n", 4, name="y", dtype=dtype)])
    )
    with pytest.raises(UserError, match=r"values that .* cannot"):
        read_samples({"x": values}, file, "s.npz")


def test_float16_that_overflows_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path, linear(np.full((64, 2), 1e5)))
    with pytest.raises(UserError, match="max-drop"):
        convert(source, str(tmp_path / "h.onnx"), Request(quantize="fp16", evaluation={"x": X}))


def test_quantized_source_is_refused(tmp_path: Path) -> None:
    request = Request(quantize="int8-qdq", calibration={"x": X})
    convert(saved(tmp_path, linear(RNG.standard_normal((64, 8)))), str(tmp_path / "q.onnx"), request)
    with pytest.raises(UserError, match="quantized already"):
        convert(str(tmp_path / "q.onnx"), str(tmp_path / "q2.onnx"), request)


def test_bodies_stay_float_and_are_counted(tmp_path: Path) -> None:
    then = onnx.helper.make_graph([node("MatMul", ["h", "w"], ["t"])], "then", [], [x_in("n", 64, name="t")])
    other = onnx.helper.make_graph([node("Neg", ["h"], ["e"])], "else", [], [x_in("n", 64, name="e")])
    nodes = [
        node("MatMul", ["x", "w"], ["h"]), node("ReduceSum", ["h"], ["s"], keepdims=0), node("Greater", ["s", "z"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]  # fmt: skip
    proto = model(nodes, [x_in("n", 64)], [x_in("n", 64, name="y")], [weight("w", RNG.standard_normal((64, 64))), weight("z", 0)])
    request = Request(quantize="int8-qdq", calibration={"x": X}, max_drop=100)
    found = convert(saved(tmp_path, proto), str(tmp_path / "q.onnx"), request).quantized
    assert found is not None and found.in_bodies == 1


BAD = {
    "missing input": ({"y": X}, "has no array 'x'"),
    "unknown input": ({"x": X, "z": X}, "no input 'z'"),
    "wrong shape": ({"x": X[:, :3]}, "the model wants"),
    "no sample": ({"x": X[:0]}, "holds no sample"),
    "not finite": ({"x": X * np.float32("nan")}, "NaN"),
    "text": ({"x": np.array([["a"] * 64])}, "only numbers"),
    "labels of another length": ({"x": X, "label": np.zeros(3, int)}, "3 labels for 32"),
    "labels that are no classes": ({"x": X, "label": np.zeros((32, 2))}, "one class number per sample"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_samples_are_refused(case: str, tmp_path: Path) -> None:
    arrays, said = BAD[case]
    with pytest.raises(UserError, match=said) as caught:
        convert(saved(tmp_path, linear(RNG.standard_normal((64, 8)))), str(tmp_path / "q.onnx"),
                Request(quantize="int8-qdq", calibration=arrays))  # fmt: skip
    assert "\n" not in str(caught.value)


def test_wake_word_embedding_loses_less_than_one_per_cent_of_its_range(tmp_path: Path) -> None:
    """Spectrograms of the coach's made-up sounds: one sound calibrates, another is measured."""
    audio = pytest.importorskip("coach.audio", reason="the coach makes the sounds")
    mel = session(str(model_file("melspectrogram")))

    def windows(seed: int, count: int) -> np.ndarray:
        track = audio.Track(seed, rates_hz=(audio.SPEECH_RATE_HZ,))
        sound = track.newest(audio.SPEECH_RATE_HZ, 10 * audio.SPEECH_RATE_HZ, 0)[None]
        frames = mel.run(None, {"input": sound})[0].reshape(-1, 32) / 10 + 2
        starts = np.linspace(0, len(frames) - 76, count).astype(int)
        return np.stack([frames[s : s + 76] for s in starts])[..., None].astype(np.float32)

    done = convert(
        str(model_file("embedding")), str(tmp_path / "q.onnx"),
        Request(quantize="int8-qdq", calibration={"input_1": windows(7, 24)}, evaluation={"input_1": windows(8, 24)}, max_drop=2),
    )  # fmt: skip
    assert done.quantized is not None
    assert done.quantized.accuracy.outputs[0].mean < 0.01 and done.bytes < done.quantized.float_bytes / 2.5


def test_a_scalar_input_stays_an_array_in_every_run(tmp_path: Path) -> None:
    """ONNX Runtime takes no numpy scalar."""
    path = saved(tmp_path, model([node("Mul", ["x", "s"], ["y"])], [x_in("N", 3), value("s", FLOAT, [])], ["y"]))
    samples = read_samples({"x": np.ones((4, 3), np.float32), "s": np.array(2.0)}, str(path), "samples.npz")
    assert len(samples) == 4 and all(type(a) is np.ndarray for feeds in samples for a in feeds.values())
    np.testing.assert_array_equal(session(str(path)).run(None, samples.feeds[3])[0], [[2, 2, 2]])
