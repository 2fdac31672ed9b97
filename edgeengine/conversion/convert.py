"""From a source to a verified ONNX file: open, export, check, compare, perhaps quantize, write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import onnx

import edgeengine
from edgeengine.conversion.base import Arrays
from edgeengine.conversion.checks import OPSETS, check_graph, check_loadable
from edgeengine.conversion.compare import Check, verify
from edgeengine.conversion.quantize import KINDS, Quantized, quantize
from edgeengine.conversion.registry import find_converter
from edgeengine.conversion.samples import read_samples
from edgeengine.conversion.write import check_target, written_aside
from edgeengine.errors import UserError
from edgeengine.graph.dtypes import FROM_ONNX
from edgeengine.graph.sizes import dims_of
from edgeengine.spec.tensor import TensorSpec

NOTE = "edgeengine.converted"
"""Metadata entry of a written model: JSON with the versions of what made it."""


class Request(msgspec.Struct, frozen=True):
    """What to make. `shapes` and `values` fix inputs of the source by name. `calibration` and `evaluation` are arrays by
    input name, samples along the first axis, with `label` where accuracy counts; `evaluation` defaults to `calibration`.
    `max_drop` is in per cent, see `Accuracy.drop`."""

    opset: int | None = None
    quantize: str | None = None
    calibration: Arrays | None = None
    evaluation: Arrays | None = None
    max_drop: float = 1.0
    shapes: Mapping[str, Sequence[int]] = {}
    values: Mapping[str, np.ndarray] = {}


class Converted(msgspec.Struct, frozen=True):
    """What was written. `files` are the model and, past 1 GiB, its weights. `checks` compare the float model with the source."""

    model: str
    files: list[str]
    bytes: int
    opset: int
    ir_version: int
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    free_batch: bool
    checks: list[Check]
    notes: list[str]
    tools: dict[str, str]
    quantized: Quantized | None


def convert(
    source: str, output: str, request: Request | None = None, progress: Callable[[str, float], None] = lambda text, share: None
) -> Converted:
    """Write the ONNX file `output` from `source`: a .onnx or .pt2 file, or module:callable.

    Raises UserError; nothing is written then, and what was at `output` stays.
    """
    request = request or Request()
    _check(request)
    target = check_target(output)
    progress(f"open {source}", 0.0)
    opened = find_converter(source).open(source, request.shapes, request.values)
    progress("export", 0.1)
    proto = opened.export(request.opset)
    check_graph(proto, source)
    _stamp(proto, opened.tools)
    check_loadable(proto, source)
    notes, quantized = list(opened.notes), None
    progress("compare with the source", 0.2)
    with written_aside(proto, target) as aside:
        checks = verify(opened, str(aside.model), source)
        if request.quantize is None:
            return _done(proto, aside.nbytes, aside.move(), opened.free_batch, checks, notes, opened.tools, None)
        calibration, evaluation = request.calibration, request.evaluation
        if evaluation is None and calibration is not None:
            evaluation = calibration
            if request.quantize != "fp16":
                notes.append("evaluated on the samples it was calibrated with; --evaluate others for an honest figure")
        if evaluation is None:
            evaluation = opened.feeds(64, 0)
            notes.append("evaluated on random inputs; --evaluate real ones for an honest figure")
        model = str(aside.model)
        given = None if calibration is None else read_samples(calibration, model, "samples to calibrate with")
        samples = read_samples(evaluation, model, "samples to evaluate with")
        small, quantized = quantize(proto, request.quantize, given, samples, request.max_drop, source, progress)
    _stamp(small, opened.tools)
    check_loadable(small, source)
    with written_aside(small, target) as aside:
        return _done(small, aside.nbytes, aside.move(), opened.free_batch, checks, notes, opened.tools, quantized)


def _check(request: Request) -> None:
    if request.opset is not None and request.opset not in OPSETS:
        raise UserError(f"--opset {request.opset}: use {OPSETS.start} to {OPSETS.stop - 1}")
    if request.quantize is not None and request.quantize not in KINDS:
        raise UserError(f"--quantize {request.quantize!r} is not known; use {' or '.join(KINDS)}")
    if request.quantize == "int8-qdq" and request.calibration is None:
        raise UserError("--quantize int8-qdq needs --calibrate FILE.npz: an array of typical samples per input of the model")
    if request.quantize is None and (request.calibration is not None or request.evaluation is not None):
        raise UserError("samples serve --quantize; say --quantize int8-qdq or fp16, or leave them out")
    if not request.max_drop >= 0:
        raise UserError(f"--max-drop {request.max_drop:g}: give the per cent that may be lost, 0 or more")


def _stamp(proto: onnx.ModelProto, tools: Mapping[str, str]) -> None:
    kept = [p for p in proto.metadata_props if p.key != NOTE]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    made = json.dumps({"edgeengine": edgeengine.__version__, **tools}, sort_keys=True)
    proto.metadata_props.add(key=NOTE, value=made)


def _done(
    proto: onnx.ModelProto, nbytes: int, files: list[str], free_batch: bool, checks: list[Check], notes: list[str],
    tools: dict[str, str], quantized: Quantized | None,
) -> Converted:  # fmt: skip
    return Converted(
        model=files[0],
        files=files,
        bytes=nbytes,
        opset=next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")),
        ir_version=proto.ir_version,
        inputs=[_spec(v) for v in proto.graph.input],
        outputs=[_spec(v) for v in proto.graph.output],
        free_batch=free_batch,
        checks=checks,
        notes=notes,
        tools=tools,
        quantized=quantized,
    )


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    return TensorSpec(value.name, FROM_ONNX.get(value.type.tensor_type.elem_type, "?"), dims_of(value) or ())
