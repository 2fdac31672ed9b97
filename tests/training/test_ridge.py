"""The closed-form head: exact, order-free, and served by the bundle it was solved for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.gradients import Request, build_trainable
from edgeengine.graph import child
from edgeengine.training import inference_session
from edgeengine.training.ridge import GAIN, RidgeHead, Sums, predictions, solve, sums_of
from tests.graph.onnxes import model, node, weight, x_in

RNG = np.random.default_rng(5)
W1, W2, B2 = RNG.standard_normal((4, 6)), RNG.standard_normal((6, 3)), RNG.standard_normal(3)
GEMM = node("Gemm", ["r", "w2", "b2"], ["y"])
TURNED = node("Gemm", ["r", "w2", "b2"], ["y"], transB=1)
PRODUCT = [node("MatMul", ["r", "w2"], ["p"]), node("Add", ["b2", "p"], ["y"])]


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    """Models run in this process instead of a child: the same code, without the start-up time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("shapes", "build"):
            patch.setattr(f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values))
        yield


def bundle_of(folder: Path, last: list[onnx.NodeProto], second: np.ndarray = W2, output: str = "y") -> Bundle:
    nodes = [node("MatMul", ["x", "w1"], ["h"]), node("Relu", ["h"], ["r"]), *last]
    weights = [weight("w1", W1), weight("w2", second), weight("b2", B2)]
    onnx.save(model(nodes, [x_in("N", 4)], [output], weights), folder / "m.onnx")
    return build_trainable(folder / "m.onnx", folder / "m.edge", Request(train="head"), parts=1)


HEADS = {
    "gemm": ([GEMM], W2, "y"),
    "transposed": ([TURNED], W2.T, "y"),
    "matmul and add": (PRODUCT, W2, "y"),
    "softmax behind it": ([GEMM, node("Softmax", ["y"], ["p"])], W2, "p"),
}


@pytest.mark.parametrize("case", HEADS)
def test_the_solved_head_is_the_least_squares_solution_and_is_served(case: str, tmp_path: Path) -> None:
    last, second, output = HEADS[case]
    head = RidgeHead(bundle_of(tmp_path, last, second, output), ridge=0.0)
    x, label = RNG.standard_normal((200, 4)).astype(np.float32), RNG.integers(0, 3, 200)
    head.observe({"x": x}, label)
    features = np.maximum(x @ W1.astype(np.float32), 0)
    design = np.column_stack([features, np.ones(200)])
    expected = design @ np.linalg.lstsq(design, np.where(np.eye(3)[label], 1.0, -1.0), rcond=None)[0] * GAIN
    found = inference_session(head.bundle, head.version()).run([output], {"x": x})[0]
    if case.startswith("softmax"):
        expected = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=2e-4)


@settings(deadline=None)
@given(st.permutations(range(60)), st.lists(st.integers(1, 59), max_size=4))
def test_order_and_batches_do_not_matter(order: list[int], cuts: list[int]) -> None:
    rng = np.random.default_rng(1)
    x, label = rng.standard_normal((60, 5)), rng.integers(0, 3, 60)
    whole, total = sums_of(x, label, 3), Sums.zeros(5, 3)
    for part in np.split(np.array(order), sorted(set(cuts))):
        total = total + sums_of(x[part], label[part], 3)
    for a, b in zip(solve(whole, 1e-3), solve(total, 1e-3), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_weights_count_samples() -> None:
    x, label = RNG.standard_normal((20, 5)), RNG.integers(0, 3, 20)
    twice, weighted = sums_of(np.tile(x, (2, 1)), np.tile(label, 2), 3), sums_of(x, label, 3, 2.0)
    np.testing.assert_allclose(twice.gram, weighted.gram)
    np.testing.assert_allclose((sums_of(x, label, 3) * 2.0).cross, weighted.cross)


def test_samples_can_be_taken_out_again(tmp_path: Path) -> None:
    head = RidgeHead(bundle_of(tmp_path, [GEMM]))
    x, label = RNG.standard_normal((50, 4)).astype(np.float32), RNG.integers(0, 3, 50)
    head.observe({"x": x}, label)
    before = head.version()
    head.observe({"x": x[:9]}, label[:9], weight=5.0)
    head.observe({"x": x[:9]}, label[:9], weight=-5.0)
    for name, array in head.version().items():
        np.testing.assert_allclose(array, before[name], atol=1e-5)


def test_it_learns_and_its_state_can_be_kept(tmp_path: Path) -> None:
    head = RidgeHead(bundle_of(tmp_path, [GEMM]))
    x = RNG.standard_normal((400, 4)).astype(np.float32)
    label = (x[:, 0] > 0).astype(np.int64)
    head.observe({"x": x}, label)
    found = predictions(inference_session(head.bundle, head.version()), "y", {"x": x})
    assert np.mean(found == label) > 0.9
    again = RidgeHead(head.bundle)
    again.restore(head.tensors())
    for name, array in again.version().items():
        np.testing.assert_array_equal(array, head.version()[name])
    with pytest.raises(UserError, match="no closed-form head of this bundle"):
        again.restore({})


OTHERS = {
    "no bias": [node("MatMul", ["r", "w2"], ["y"])],
    "scaled": [node("Gemm", ["r", "w2", "b2"], ["y"], alpha=0.5)],
    "bias read twice": [GEMM.__class__.FromString(GEMM.SerializeToString()), node("Add", ["q", "b2"], ["y"])],
}
OTHERS["bias read twice"][0].output[0] = "q"


@pytest.mark.parametrize("case", OTHERS)
def test_another_last_layer_is_refused(case: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no linear one"):
        RidgeHead(bundle_of(tmp_path, OTHERS[case]))


def test_without_samples_there_is_nothing_to_solve(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has seen no sample"):
        RidgeHead(bundle_of(tmp_path, [GEMM])).version()
