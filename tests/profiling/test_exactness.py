"""Outputs against the reference."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from edgeengine.profiling.exactness import FP16, FP32, check, count_denormals, relative_difference
from edgeengine.spec import Processor, SubgraphSpec, TensorSpec
from tests.builders import bare_bundle

BUNDLE = bare_bundle("m", 1)
GPU, NPU = Processor("gpu", "gpu", "Gpu", ("gpu",)), Processor("npu", "npu", "Npu", ("npu",))
CPU = Processor("cpu0", "cpu", "CPUExecutionProvider", ("core0",))
VALUES = np.linspace(-1, 3, 100, dtype=np.float32)  # range 4


def subgraph(dtype: str = "float32", **more: Any) -> SubgraphSpec:
    return SubgraphSpec("s0_1", "s0_1.onnx", 0, 1, (), (TensorSpec("y", dtype, (100,)),), 1, **more)


def verdict(found: np.ndarray, expected: np.ndarray, processor: Processor = GPU, **more: Any) -> str:
    return check(BUNDLE, subgraph(str(expected.dtype), **more), processor, {"y": found}, {"y": expected}).verdict


@pytest.mark.parametrize(("processor", "bound"), [(GPU, FP32), (CPU, FP32), (NPU, FP16)])
def test_floats_may_differ_by_a_share_of_the_range(processor: Processor, bound: float) -> None:
    for share, expected in ((0.9, "ok"), (1.1, "wrong")):
        found = VALUES.copy()
        found[7] += share * bound * 4
        assert verdict(found, VALUES, processor) == expected


def test_missing_output_is_wrong() -> None:
    found = check(BUNDLE, subgraph(), GPU, {"z": VALUES}, {"y": VALUES})
    assert (found.verdict, found.reason) == ("wrong", "output 'y' is missing")


def test_half_precision_may_differ_more() -> None:
    expected = VALUES.astype(np.float16)
    found = expected.copy()
    found[7] += np.float16(0.02)  # 0.5 % of the range
    assert verdict(found, expected) == "ok"
    found[7] += np.float16(0.1)
    assert verdict(found, expected) == "wrong"


def test_eight_bit_tensors_may_differ_by_two_steps() -> None:
    expected = np.arange(100, 200, dtype=np.uint8)
    for steps, said in ((2, "ok"), (3, "wrong")):
        found = expected.copy()
        found[7] += steps
        assert verdict(found, expected) == said


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear", "QLinearConv"])
def test_dequantized_tensors_may_differ_by_two_of_their_own_steps(op: str) -> None:
    scale = np.float32(0.05)
    expected = scale * np.arange(-20, 80, dtype=np.float32)
    for steps, said in ((2, "ok"), (3, "wrong")):
        found = expected.copy()
        found[7] += steps * scale
        assert verdict(found, expected, op_counts={op: 1}) == said


def test_optimized_cpu_may_differ_twice_as_much_as_the_whole_does() -> None:
    exactness = msgspec.structs.replace(BUNDLE.manifest.exactness, whole_rel_diff_optimized=0.01)
    loose = BUNDLE.__class__(BUNDLE.path, BUNDLE.hash, msgspec.structs.replace(BUNDLE.manifest, exactness=exactness))
    found = VALUES.copy()
    found[7] += 0.015 * 4
    assert check(loose, subgraph(), CPU, {"y": found}, {"y": VALUES}).verdict == "ok"
    assert check(loose, subgraph(), GPU, {"y": found}, {"y": VALUES}).verdict == "wrong"


@pytest.mark.parametrize("dtype", ["int64", "bool", "object"])
def test_indices_flags_and_strings_must_be_equal(dtype: str) -> None:
    expected = np.array([1, 0, 1], dtype)
    found = expected.copy()
    assert verdict(found, expected) == "ok"
    found[1] = 1
    assert verdict(found, expected) == "wrong"


def test_nan_equals_nan_and_nothing_else() -> None:
    expected = VALUES.copy()
    expected[3] = np.nan
    expected[4] = np.inf
    assert relative_difference(expected, expected.copy()) == 0
    for place, value in ((3, 0.0), (5, np.nan), (4, 1.0), (4, -np.inf), (5, np.inf)):
        found = expected.copy()
        found[place] = value
        assert verdict(found, expected) == "wrong", (place, value)


def test_other_shapes_and_types_do_not_compare() -> None:
    assert verdict(VALUES[:-1], VALUES) == "wrong"
    assert verdict(VALUES.astype(np.float64), VALUES) == "wrong"


def test_constant_output_is_compared_with_its_magnitude() -> None:
    expected = np.full(10, 50, np.float32)
    assert relative_difference(expected, expected + 1) == pytest.approx(0.02)
    assert relative_difference(np.zeros(3, np.float32), np.full(3, 0.5, np.float32)) == 0.5


def test_without_a_reference_nothing_is_claimed() -> None:
    assert check(BUNDLE, subgraph(), GPU, {"y": VALUES}, {}) == ("unchecked", None, 0, "")


def test_reason_names_the_output() -> None:
    said = check(BUNDLE, subgraph(), GPU, {"y": VALUES + 1}, {"y": VALUES})
    assert said.max_diff == pytest.approx(0.25) and "'y' differs by 0.25 of its range, more than 0.001" in said.reason


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_denormals_are_counted(dtype: str) -> None:
    tiny = np.finfo(dtype).tiny
    values = np.array([0.0, -0.0, 1.0, tiny, -tiny, tiny / 2, -tiny / 4, np.nan, np.inf], dtype)
    assert count_denormals(values) == 2
    assert count_denormals(np.array([1, 2])) == 0
