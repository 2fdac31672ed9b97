"""Smaller models: int8 with quantize/dequantize pairs, or float16. Always measured against the float model, on samples.

Both rest on ONNX Runtime's own tools. int8 is made so that it is right on every x86 processor: activations unsigned,
weights signed and of 7 bits (-64..64), one scale per channel. A product of unsigned and signed bytes is summed pairwise in
16 bits by processors without VNNI (AVX2's vpmaddubsw), where 2 * 255 * 127 overflows and 2 * 255 * 64 does not.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import onnx
import onnxruntime as ort

from edgeengine.conversion.accuracy import Accuracy, Reference
from edgeengine.conversion.base import Arrays
from edgeengine.conversion.checks import nodes_of
from edgeengine.conversion.samples import Samples
from edgeengine.errors import UserError
from edgeengine.graph.session import RUNTIME_ERRORS, first_line

KINDS = ("int8-qdq", "fp16")
MOST_FLOAT = 0.25
"""Share of the nodes with weights that may stay float where int8 as a whole costs too much."""
_WEIGHTED = ("Conv", "ConvTranspose", "MatMul", "Gemm")
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")

Progress = Callable[[str, float], None]


class Quantized(msgspec.Struct, frozen=True):
    """`float_bytes` is what the model had before; `kept_float` names nodes that stayed float, `in_bodies` how many nodes
    inside If, Loop and Scan did, because the quantizer does not look there."""

    kind: str
    accuracy: Accuracy
    max_drop: float
    float_bytes: int
    kept_float: list[str]
    in_bodies: int


def quantize(
    proto: onnx.ModelProto,
    kind: str,
    calibration: Samples | None,
    evaluation: Samples,
    max_drop: float,
    where: str,
    progress: Progress,
) -> tuple[onnx.ModelProto, Quantized]:
    """`proto` as `kind`, and what that costs on `evaluation`. `max_drop` is in per cent, see `Accuracy.drop`.

    Where int8 as a whole costs more, the nodes that cost most stay float, up to `MOST_FLOAT` of those with weights.
    Raises UserError where it still costs more, where there is nothing to quantize, or the model already is.
    """  # fmt: skip
    done = [n for n in nodes_of(proto) if n.op_type in _QUANTIZED]
    if done:
        raise UserError(f"{where}: is quantized already ({done[0].op_type} at {done[0].output[0]!r}); give the float model")
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as name:
        work = Path(name)
        onnx.save(proto, work / "float.onnx")
        reference = Reference(str(work / "float.onnx"), evaluation, where)
        size = (work / "float.onnx").stat().st_size
        if kind == "fp16":
            found, accuracy, kept = _float16(proto, work, reference, where)
        else:
            assert calibration is not None
            found, accuracy, kept = _Int8(work, calibration, reference, where, progress).search(max_drop)
        top = {n.output[0] for n in proto.graph.node if n.output}
        in_bodies = sum(n.op_type in _WEIGHTED and n.output[0] not in top for n in nodes_of(proto))
    if not accuracy.drop <= max_drop:
        measured = (
            "accuracy falls by {:.2f} points" if accuracy.criterion == "accuracy" else "outputs err by {:.2f} % of their range"
        )
        advice = f", even with {len(kept)} nodes left float ({', '.join(kept[:3])})" if kept else ""
        raise UserError(
            f"{where}: as {kind} its {measured.format(accuracy.drop)}{advice}, more than --max-drop {max_drop:g}; "
            f"calibrate with more, or more typical, samples, or allow more"
        )
    return found, Quantized(kind, accuracy, max_drop, size, kept, in_bodies)


def _float16(proto: onnx.ModelProto, work: Path, reference: Reference, where: str) -> tuple[onnx.ModelProto, Accuracy, list[str]]:
    """Weights and arithmetic in float16, inputs and outputs as before."""
    from onnxruntime.quantization.onnx_model import ONNXModel
    from onnxruntime.transformers.float16 import convert_float_to_float16

    try:
        with _quiet():
            copy = onnx.ModelProto()
            copy.CopyFrom(proto)
            found = convert_float_to_float16(copy, keep_io_types=True)
            ONNXModel(found).topological_sort()  # the casts of the inputs come last
    except (ValueError, TypeError, KeyError, IndexError, AssertionError, RuntimeError, *RUNTIME_ERRORS) as e:
        raise UserError(f"{where}: cannot become float16 ({first_line(e)}); try --quantize int8-qdq") from e
    if _halves(found) == _halves(proto):
        raise UserError(f"{where}: holds nothing in float32, so nothing for fp16; leave --quantize out")
    onnx.save(found, work / "half.onnx")
    return found, reference.compare(str(work / "half.onnx")), []


def _halves(proto: onnx.ModelProto) -> int:
    """How much of a model is float16: its weights, inputs and outputs, and casts to it."""
    half = onnx.TensorProto.FLOAT16
    values = [v.type.tensor_type.elem_type for v in (*proto.graph.input, *proto.graph.output)]
    values += [t.data_type for t in proto.graph.initializer]
    values += [a.i for n in nodes_of(proto) if n.op_type == "Cast" for a in n.attribute if a.name == "to"]
    return values.count(half)


class _Int8:
    """One search: the whole model first, then with ever more nodes left float."""

    def __init__(self, work: Path, calibration: Samples, reference: Reference, where: str, progress: Progress) -> None:
        self._work, self._calibration, self._reference = work, calibration, reference
        self._where, self._progress = where, progress
        self._prepared = _prepare(work, where)
        self._nodes = [n.name for n in onnx.load(self._prepared).graph.node if n.op_type in _WEIGHTED]
        if not self._nodes:
            raise UserError(f"{where}: has no Conv, MatMul or Gemm outside bodies, so nothing for int8; leave --quantize out")

    def search(self, max_drop: float) -> tuple[onnx.ModelProto, Accuracy, list[str]]:
        self._progress("calibrate, quantize", 0.3)
        best = self._attempt([])
        most = int(MOST_FLOAT * len(self._nodes))
        if best[1].drop <= max_drop or not most:
            return best
        ranked = self._ranked()
        for count in range(1, most + 1):
            self._progress(f"quantize with {count} nodes left float", 0.8 + 0.15 * count / most)
            tried = self._attempt(ranked[:count])
            if tried[1].drop < best[1].drop:
                best = tried
            if best[1].drop <= max_drop:
                break
        return best

    def _ranked(self) -> list[str]:
        """Nodes by how much leaving each alone in float gains, most first."""
        drops = {}
        for k, node in enumerate(self._nodes):
            self._progress(f"how much does {node} cost", 0.3 + 0.5 * k / len(self._nodes))
            drops[node] = self._attempt([node])[1].drop
        return sorted(drops, key=lambda n: drops[n])

    def _attempt(self, kept: list[str]) -> tuple[onnx.ModelProto, Accuracy, list[str]]:
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        file = self._work / "int8.onnx"
        try:
            with _quiet():
                quantize_static(
                    str(self._prepared),
                    str(file),
                    _Reader(self._calibration),
                    quant_format=QuantFormat.QDQ,
                    per_channel=True,
                    reduce_range=True,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                    nodes_to_exclude=list(kept),
                )
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError, *RUNTIME_ERRORS) as e:
            raise UserError(f"{self._where}: ONNX Runtime's quantizer gives up ({first_line(e)}); try --quantize fp16") from e
        return onnx.load(file), self._reference.compare(str(file)), kept


class _Reader:
    """What the quantizer wants of calibration data: the next feeds, None at the end."""

    def __init__(self, samples: Samples) -> None:
        self._left = iter(samples)

    def get_next(self) -> Arrays | None:
        return next(self._left, None)


def _prepare(work: Path, where: str) -> Path:
    """Fold what is constant and merge BatchNormalization into Conv, at the basic level: standard operators only.

    Every node gets a name, as the quantizer knows nodes by name; shapes are inferred.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(work / "folded.onnx")
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        ort.InferenceSession(str(work / "float.onnx"), options, providers=["CPUExecutionProvider"])
    except RUNTIME_ERRORS as e:
        raise UserError(f"{where}: ONNX Runtime does not load it ({first_line(e)}); convert it without --quantize first") from e
    proto = onnx.load(work / "folded.onnx")
    taken = {n.name for n in proto.graph.node}
    for k, node in enumerate(proto.graph.node):
        if not node.name:
            node.name = next(n for n in (f"{node.op_type}_{k}", f"{node.op_type}_{k}_") if n not in taken)
    onnx.save(onnx.shape_inference.infer_shapes(proto), work / "prepared.onnx")
    return work / "prepared.onnx"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The tools print and log as they go; what matters comes back as errors."""
    previous = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
