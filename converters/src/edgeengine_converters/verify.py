"""Decides whether an exported model may be used.

Refused are: a fixed batch axis, nodes in training mode, weights in a second file, operators outside the
standard set, an opset or IR version out of range, and results that differ from torch's at any of the batch
sizes tried.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state
from torch import Tensor, nn

from edgeengine_converters.errors import ConversionError

OPSETS = range(18, 21)
MAX_IR = 10
TOLERANCE = 1e-4
"""Largest allowed difference from torch, as a share of the range of torch's output."""

# onnxruntime's errors have no common base class below Exception.
_RUNTIME_ERRORS = (
    ort_state.Fail,
    ort_state.InvalidArgument,
    ort_state.InvalidGraph,
    ort_state.InvalidProtobuf,
    ort_state.NotImplemented,
    ort_state.RuntimeException,
)


def check_structure(model: onnx.ModelProto, name: str, input_name: str, output_name: str) -> None:
    """Checks everything that can be told without running the model.

    Raises ConversionError for the first thing that is not as it should be.
    """

    def refuse(what: str, fix: str) -> ConversionError:
        return ConversionError(what, where=name, fix=fix)

    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise refuse(
            f"not a valid model ({error})", "report it with the module and the torch version"
        ) from error
    if model.ir_version > MAX_IR:
        raise refuse(f"IR version {model.ir_version}", f"use at most {MAX_IR}")
    domains = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    if model.functions or set(domains) != {"ai.onnx"}:
        raise refuse(
            f"operators outside the standard set ({', '.join(sorted(domains))})", "use standard layers"
        )
    if domains["ai.onnx"] not in OPSETS:
        raise refuse(f"opset {domains['ai.onnx']}", f"use {OPSETS.start} to {OPSETS.stop - 1}")
    graph = model.graph
    for role, entries, expected in (
        ("input", graph.input, input_name),
        ("output", graph.output, output_name),
    ):
        if [entry.name for entry in entries] != [expected]:
            raise refuse(f"{role}s {[entry.name for entry in entries]}", f"expected only '{expected}'")
        axes = entries[0].type.tensor_type.shape.dim
        if not axes or axes[0].dim_param != "batch":
            raise refuse(
                f"the batch axis of the {role} is fixed", "write the forward pass for any batch size"
            )
    for node in graph.node:
        if any(item.name == "training_mode" and item.i for item in node.attribute):
            raise refuse(f"node {node.name} ({node.op_type}) is in training mode", "export in inference mode")
    if any(item.data_location == onnx.TensorProto.EXTERNAL for item in graph.initializer):
        raise refuse("weights in a second file", "keep the model small enough for one file")


def differences(
    content: bytes, module: nn.Module, sample: Callable[[int], Tensor], batches: Sequence[int], name: str
) -> dict[int, float]:
    """Runs model and module on the same input; returns the largest absolute difference at each batch size.

    Raises ConversionError when the model does not load or run, gives another shape, gives a value that is not
    finite, or differs by more than `TOLERANCE` of the range of the module's output.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except _RUNTIME_ERRORS as error:
        raise ConversionError(
            f"onnxruntime cannot load it ({error})", where=name, fix="use layers that it supports"
        ) from error
    return {batch: _difference(session, module, sample(batch), f"{name}, batch {batch}") for batch in batches}


def _difference(
    session: onnxruntime.InferenceSession, module: nn.Module, values: Tensor, where: str
) -> float:
    with torch.no_grad():
        expected = module(values).numpy()
    try:
        actual = session.run(None, {session.get_inputs()[0].name: values.numpy()})[0]
    except _RUNTIME_ERRORS as error:
        raise ConversionError(
            f"onnxruntime cannot run it ({error})",
            where=where,
            fix="write the forward pass for any batch size",
        ) from error
    if actual.shape != expected.shape or not np.isfinite(expected).all():
        raise ConversionError(
            f"output {actual.shape}, torch gives {expected.shape}, all finite: {np.isfinite(expected).all()}",
            where=where,
            fix="write the forward pass for any batch size",
        )
    worst = float(np.abs(actual.astype(np.float64) - expected).max())
    bound = TOLERANCE * float(np.ptp(expected))
    if not worst <= bound:
        raise ConversionError(
            f"differs from torch by {worst:.3g}, allowed {bound:.3g}",
            where=where,
            fix="look for a size or a value taken from the example",
        )
    return worst
