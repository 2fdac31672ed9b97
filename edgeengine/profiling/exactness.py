"""Are the outputs right? A provider that answers fast and wrong must not win.

Some return success and wrong values (onnxruntime#32569, CoreML), some return before the values are there. So outputs are compared
with the reference every time something is measured; the tolerances are those of docs/design.md, Exactness.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Tensors
from edgeengine.spec import Processor, SubgraphSpec

CPU = "CPUExecutionProvider"
FP32, FP16 = 1e-3, 1e-2  # of the output's range
STEPS = 2.05  # quantization steps: two, and what rounding adds
LEVELS = 256  # values an 8-bit tensor can have
OPTIMIZED_CPU = 2  # times what the whole model differs from itself, optimized on this CPU
QUANTIZED_OPS = ("DequantizeLinear", "QuantizeLinear", "QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear")


class Verdict(NamedTuple):
    """`verdict`: "ok", "wrong" or "unchecked"; `max_diff` is the greatest difference, as a share of its output's range."""

    verdict: str
    max_diff: float | None
    denormals: int
    reason: str = ""


def check(bundle: Bundle, subgraph: SubgraphSpec, processor: Processor, outputs: Tensors, reference: Tensors) -> Verdict:
    """Compare `outputs` of the subgraph with the `reference` tensors (those that are not in it stay unchecked)."""
    known = [t.name for t in subgraph.outputs if t.name in reference]
    if not known:
        return Verdict("unchecked", None, 0)
    greatest, wrong = 0.0, ""
    for name in known:
        if name not in outputs:
            return Verdict("wrong", float("inf"), 0, f"output {name!r} is missing")
        found, expected = np.asarray(outputs[name]), np.asarray(reference[name])
        difference, bound = relative_difference(expected, found), tolerance(bundle, subgraph, processor, expected)
        greatest = max(greatest, difference)
        if not difference <= bound and not wrong:
            wrong = f"output {name!r} differs by {difference:.2g} of its range, more than {bound:.2g}"
    denormals = sum(count_denormals(np.asarray(outputs[name])) for name in known)
    return Verdict("wrong" if wrong else "ok", greatest, denormals, wrong)


def tolerance(bundle: Bundle, subgraph: SubgraphSpec, processor: Processor, expected: np.ndarray) -> float:
    """The greatest difference allowed to one output, as a share of its range.

    Integers other than 8-bit ones (indices, lengths) and booleans must be equal. An NPU computes float32 in half precision.
    The optimized CPU may differ twice as much as it does on the whole model (an 8-bit net was seen to differ by three steps).
    """
    if expected.dtype in (np.uint8, np.int8):
        allowed = STEPS / (_range(expected) or 1.0)
    elif expected.dtype.kind != "f":
        return 0.0
    elif any(op in subgraph.op_counts for op in QUANTIZED_OPS):
        allowed = STEPS * _step(expected)
    else:
        half = processor.kind == "npu" or any(t.dtype == "float16" for t in (*subgraph.inputs, *subgraph.outputs))
        allowed = FP16 if half else FP32
    if processor.provider == CPU:
        allowed = max(allowed, OPTIMIZED_CPU * bundle.manifest.exactness.whole_rel_diff_optimized)
    return allowed


def relative_difference(expected: np.ndarray, found: np.ndarray) -> float:
    """Greatest difference as a share of the range of `expected`; NaN equals NaN; infinite where they do not compare."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return float("inf")
    if expected.dtype.kind not in "biuf":
        return 0.0 if np.array_equal(expected, found) else float("inf")
    e, f = expected.astype(np.float64), found.astype(np.float64)
    same = (e == f) | (np.isnan(e) & np.isnan(f))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        greatest = float(np.abs(e - f)[~same].max())
    return greatest / (_range(expected) or 1.0) if np.isfinite(greatest) else float("inf")


def count_denormals(values: np.ndarray) -> int:
    """Values too small for a normal float of their type: arithmetic on them may take a CPU many times as long."""
    if values.dtype.kind != "f":
        return 0
    return int(np.count_nonzero((values != 0) & (np.abs(values) < np.finfo(values.dtype).tiny)))


def _range(values: np.ndarray) -> float:
    """Greatest minus least finite value; of a constant tensor its magnitude."""
    finite = values[np.isfinite(values)].astype(np.float64)
    return float(np.ptp(finite) or np.abs(finite).max()) if finite.size else 0.0


def _step(values: np.ndarray) -> float:
    """One quantization step of a dequantized tensor, as a share of its range: the smallest gap between its values.

    Where float operators follow the last DequantizeLinear there are more values than 8 bits have: then the range in equal steps.
    """
    levels = np.unique(values[np.isfinite(values)].astype(np.float64))
    if not 1 < levels.size <= LEVELS:
        return 1 / (LEVELS - 1)
    return float(np.diff(levels).min() / np.ptp(levels))
