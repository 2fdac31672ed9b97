"""Multiply-accumulates of each operator, as a table: a rule per operator that multiplies, and a list of those that do
not.

An operator in neither raises NotSupported; there is no silent default. Normalizations, activations, reductions, pooling
and data movement count zero: they cost bytes, not multiply-accumulates. A body counts what its branch or its iterations
executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgeengine.errors import NotSupported
from edgeengine.graph.dataflow import bodies
from edgeengine.graph.executions import body_path

Shape = tuple[int, ...]

# Executions of the nodes inside bodies: path of the node -> (input shapes, output shapes) of each execution. See
# `executions.py`.
Executions = Mapping[str, Sequence[tuple[Sequence[Shape], Sequence[Shape]]]]


@dataclass(frozen=True)
class Op:
    """One execution of a node. `inputs` and `outputs` are shapes by position, None where absent."""

    node: onnx.NodeProto
    inputs: tuple[Shape | None, ...]
    outputs: tuple[Shape | None, ...]

    def shape(self, index: int) -> Shape:
        return self.inputs[index] or ()

    def out(self, index: int = 0) -> Shape:
        return self.outputs[index] or ()

    def integer(self, name: str, default: int) -> int:
        return next((a.i for a in self.node.attribute if a.name == name), default)

    def text(self, name: str) -> str:
        return next((a.s.decode() for a in self.node.attribute if a.name == name), "")


def _conv(weights: int) -> Callable[[Op], int]:
    return lambda op: math.prod(op.out()) * math.prod(op.shape(weights)[1:])


def _conv_transpose(op: Op) -> int:
    return math.prod(op.shape(0)) * math.prod(op.shape(1)[1:])


def _gemm(op: Op) -> int:
    return math.prod(op.out()) * op.shape(0)[0 if op.integer("transA", 0) else 1]


def _matmul(op: Op) -> int:
    return math.prod(op.out()) * (op.shape(0)[-1] if op.shape(0) else 1)


def _fused_matmul(op: Op) -> int:
    return math.prod(op.out()) * op.shape(0)[-2 if op.integer("transA", 0) else -1]


def _einsum(op: Op) -> int:
    """The product of all distinct labels' sizes; an ellipsis counts once. One operand only moves or sums."""
    terms = op.text("equation").replace(" ", "").split("->")[0].split(",")
    if len(terms) < 2:
        return 0
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, (s or () for s in op.inputs), strict=False):
        head, _, tail = term.partition("...")
        rest = len(shape) - len(head) - len(tail)
        sizes.update(zip(head, shape, strict=False))
        sizes.update(zip(tail, shape[len(shape) - len(tail) :], strict=False))
        if "..." in term:
            sizes["..."] = max(sizes.get("...", 1), math.prod(shape[len(head) : len(head) + rest]))
    return math.prod(sizes.values())


def _recurrent(op: Op) -> int:
    """LSTM, GRU, RNN: every step of every sequence multiplies by W and R, whatever the layout."""
    return math.prod(op.shape(0)[:2]) * (math.prod(op.shape(1)) + math.prod(op.shape(2)))


def _attention(op: Op) -> int:
    """Scores and weighted sum; keys include a past where the node returns them."""
    keys = op.outputs[1] if len(op.outputs) > 1 and op.outputs[1] else op.shape(1)
    return (math.prod(op.shape(0)) + math.prod(op.out())) * (keys[-2] if len(keys) > 1 else 1)


def _packed_attention(op: Op) -> int:
    batch, steps, hidden = op.shape(0)
    return batch * steps * math.prod(op.shape(1)) + 2 * batch * steps * steps * hidden


def _matmul_nbits(op: Op) -> int:
    return math.prod(op.out()) * op.integer("K", 0)


def _fourier(op: Op) -> int:
    """n log2 n for every transform."""
    size = max(op.shape(0)[1:] or (1,)) if op.node.op_type == "DFT" else max(op.out()[2:3] or (1,))
    return math.prod(op.out()) * max(1, math.ceil(math.log2(max(2, size))))


_MS = "com.microsoft"
RULES: dict[tuple[str, str], Callable[[Op], int]] = {
    ("", "Conv"): _conv(1),
    ("", "ConvInteger"): _conv(1),
    ("", "QLinearConv"): _conv(3),
    ("", "DeformConv"): _conv(1),
    ("", "ConvTranspose"): _conv_transpose,
    ("", "Gemm"): _gemm,
    ("", "MatMul"): _matmul,
    ("", "MatMulInteger"): _matmul,
    ("", "QLinearMatMul"): _matmul,
    ("", "Einsum"): _einsum,
    ("", "LSTM"): _recurrent,
    ("", "GRU"): _recurrent,
    ("", "RNN"): _recurrent,
    ("", "Attention"): _attention,
    ("", "DFT"): _fourier,
    ("", "STFT"): _fourier,
    (_MS, "FusedConv"): _conv(1),
    (_MS, "FusedGemm"): _gemm,
    (_MS, "FusedMatMul"): _fused_matmul,
    (_MS, "MatMulInteger16"): _matmul,
    (_MS, "MatMulIntegerToFloat"): _matmul,
    (_MS, "DynamicQuantizeMatMul"): _matmul,
    (_MS, "MatMulNBits"): _matmul_nbits,
    (_MS, "QGemm"): _gemm,
    (_MS, "MultiHeadAttention"): _attention,
    (_MS, "Attention"): _packed_attention,
}

_ZERO = """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Bernoulli BitCast
    BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu CenterCropPad Clip
    Col2Im Compress Concat ConcatFromSequence Constant ConstantOfShape Cos Cosh CumProd CumSum DepthToSpace
    DequantizeLinear Det Div Dropout DynamicQuantizeLinear Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather
    GatherElements GatherND Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool Greater GreaterOrEqual GridSample
    GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish Hardmax Identity ImageDecoder
    InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
    LpNormalization LpPool Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization MelWeightMatrix Min Mish
    Mod Mul Multinomial Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not OneHot Optional
    OptionalGetElement OptionalHasElement Or PRelu Pad Pow QuantizeLinear RMSNormalization RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
    ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare RegexFullMatch Relu Reshape Resize
    ReverseSequence RoiAlign RotaryEmbedding Round Scatter ScatterElements ScatterND Selu SequenceAt
    SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Shape Shrink Sigmoid Sign Sin Sinh
    Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze
    StringConcat StringNormalizer StringSplit Sub Sum Swish Tan Tanh TensorScatter TfIdfVectorizer ThresholdedRelu
    Tile TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
"""
_ZERO_MS = """
    BiasAdd BiasDropout BiasGelu BiasSoftmax BiasSplitGelu DequantizeLinear EmbedLayerNormalization FastGelu
    FusedConcat Gelu GroupNorm NhwcMaxPool QLinearAdd QLinearAveragePool QLinearConcat QLinearGlobalAveragePool
    QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax QuantizeLinear QuickGelu RotaryEmbedding
    SkipLayerNormalization SkipSimplifiedLayerNormalization SimplifiedLayerNormalization TransposeMatMulScale Trilu
    Unique
"""
ZERO = frozenset(("", op) for op in _ZERO.split()) | frozenset((_MS, op) for op in _ZERO_MS.split())
CONTROL_FLOW = frozenset({("", "If"), ("", "Loop"), ("", "Scan"), ("", "SequenceMap")})


def macs(op: Op, opset: Mapping[str, int], executions: Executions, path: str) -> int:
    """Multiply-accumulates of one top-level node.

    `path` names the node in `executions`, which knows what ran inside its bodies. Raises NotSupported for an operator
    without a row, at any depth.
    """
    if _key(op.node) in CONTROL_FLOW:
        return _inside(op.node, opset, executions, path)
    return _rule(op.node, opset, path)(op)


def _inside(node: onnx.NodeProto, opset: Mapping[str, int], executions: Executions, path: str) -> int:
    """If: the branches' maximum (one that never ran counts 0); Loop and Scan: the sum over the iterations that ran."""
    counts = []
    for b, body in enumerate(bodies(node)):
        count = 0
        for n, inner in enumerate(body.node):
            inner_path = body_path(path, b, n)
            if _key(inner) in CONTROL_FLOW:
                count += _inside(inner, opset, executions, inner_path)
                continue
            rule = _rule(inner, opset, inner_path)
            for inputs, outputs in executions.get(inner_path, ()):
                count += rule(Op(inner, _by_position(inner.input, inputs), _by_position(inner.output, outputs)))
        counts.append(count)
    return max(counts, default=0)


def _by_position(names: Sequence[str], shapes: Sequence[Shape]) -> tuple[Shape | None, ...]:
    """Shapes of the present names, put at their positions."""
    present = iter(shapes)
    return tuple(next(present, None) if name else None for name in names)


def _rule(node: onnx.NodeProto, opset: Mapping[str, int], path: str) -> Callable[[Op], int]:
    key = _key(node)
    if key in RULES:
        return RULES[key]
    if key in ZERO:
        return lambda op: 0
    raise NotSupported(node.op_type, key[0], opset.get(key[0], 0), node.name or f"#{path}", "cost rule")


def _key(node: onnx.NodeProto) -> tuple[str, str]:
    return ("" if node.domain == "ai.onnx" else node.domain), node.op_type
