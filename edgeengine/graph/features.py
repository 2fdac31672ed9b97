"""Features of nodes for the cost model, fused as mobile runtimes fuse: what disappears into a convolution costs nothing.

Classes follow the counting of nn-Meter's kernels in spirit (Zhang et al., MobiSys 2021): an operator is priced with what a
runtime would run it as, not as the exporter wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from edgeengine.graph.dataflow import Dataflow
from edgeengine.graph.study import Sized
from edgeengine.spec.features import Features

_CONV_NAMES = "Conv ConvInteger QLinearConv DeformConv ConvTranspose FusedConv"
_PRODUCT_NAMES = """
    Gemm MatMul MatMulInteger QLinearMatMul Einsum LSTM GRU RNN Attention DFT STFT FusedGemm FusedMatMul MatMulInteger16
    MatMulIntegerToFloat DynamicQuantizeMatMul MatMulNBits QGemm MultiHeadAttention
"""
_ELEMENTWISE_NAMES = """
    Add Sub Mul Div Pow Max Min Mean Sum MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool
    LayerNormalization InstanceNormalization GroupNormalization RMSNormalization GroupNorm SkipLayerNormalization
    SimplifiedLayerNormalization LpNormalization MeanVarianceNormalization LRN Softmax LogSoftmax Hardmax ReduceL1 ReduceL2
    ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Resize Upsample
    GridSample RoiAlign MaxRoiPool MaxUnpool ArgMax ArgMin TopK CumSum NonMaxSuppression Where Sqrt Reciprocal QLinearAdd
    QLinearMul QLinearAveragePool QLinearGlobalAveragePool QLinearSoftmax
"""
_ACTIVATION_NAMES = """
    Sigmoid HardSigmoid HardSwish Swish Tanh Gelu FastGelu QuickGelu BiasGelu Erf Exp Log Elu Selu Celu Mish Softplus
    Softsign LeakyRelu PRelu Sin Cos QLinearSigmoid QLinearLeakyRelu
"""
_MOVE_NAMES = "Concat Pad Tile Expand DepthToSpace SpaceToDepth ScatterND ScatterElements FusedConcat QLinearConcat"

_CONVOLUTIONS = frozenset(_CONV_NAMES.split())
_PRODUCTS = frozenset(_PRODUCT_NAMES.split())
_ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())
_ACTIVATIONS = frozenset(_ACTIVATION_NAMES.split())
_MOVES = frozenset(_MOVE_NAMES.split())
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"})


def features_of(seen: Sized, nodes: Iterable[int]) -> Features:
    """Of `nodes` together. Parameters count once, with the first reader.

    Raises NotSupported for an operator without a cost rule.
    """
    counted: set[str] = set()
    return sum((_node(seen, n, counted) for n in nodes if n not in seen.flow.constants), Features())


def _node(seen: Sized, node: int, counted: set[str]) -> Features:
    flow, op = seen.flow, seen.flow.nodes[node]
    weights = [t for t in flow.reads[node] if t not in counted and _is_weight(flow, t)]
    counted.update(weights)
    params = sum(_elements(seen, t) for t in weights)
    macs = seen.node_macs(node)
    read = sum(_elements(seen, t) for t in flow.reads[node] if not _is_constant(flow, t))
    written = sum(_elements(seen, t) for t in flow.writes[node])
    if op.op_type in _CONVOLUTIONS:
        kind = _convolution(seen, node)
        return Features(
            **{kind: macs}, parameters=params, read=read, written=written, convolutions=1,
            depthwise_convolutions=int(kind == "depthwise"),
        )  # fmt: skip
    if op.op_type in _PRODUCTS or macs:
        constant = any(_is_constant(flow, t) for t in flow.reads[node])
        return Features(**{"fc" if constant else "attention": macs}, parameters=params, read=read, written=written, matmuls=1)
    if op.op_type in _ELEMENTWISE and not _fused(flow, node):
        return Features(parameters=params, read=read, written=written, elementwise=1)
    if op.op_type in _ACTIVATIONS:
        return Features(parameters=params, read=read, written=written, activations=1)
    if op.op_type in _MOVES:
        return Features(parameters=params, read=read, written=written, moves=1)
    return Features(parameters=params)


def _convolution(seen: Sized, node: int) -> str:
    op = seen.flow.nodes[node]
    weight = seen.shape(op.input[3 if op.op_type == "QLinearConv" else 1]) or ()
    groups = next((a.i for a in op.attribute if a.name == "group"), 1)
    if groups > 1:
        # weights are (out, in / groups, …), of a transposed convolution (in, out / groups, …): 1 either way if depthwise
        return "depthwise" if weight[1:2] == (1,) else "grouped"
    return "pointwise" if math.prod(weight[2:]) == 1 else "dense"


def _fused(flow: Dataflow, node: int) -> bool:
    """Arithmetic with a constant (scales, biases), and the product of x with its own gate (SiLU): part of a neighbour."""
    op = flow.nodes[node]
    if op.op_type not in _ARITHMETIC:
        return False
    if any(_is_constant(flow, t) for t in op.input):
        return True
    for gate, other in (tuple(op.input[:2]), tuple(op.input[1::-1])) if op.op_type == "Mul" else ():
        maker = flow.producer.get(gate)
        if maker is not None and flow.nodes[maker].op_type in ("Sigmoid", "HardSigmoid") and flow.nodes[maker].input[0] == other:
            return True
    return False


def _is_constant(flow: Dataflow, tensor: str) -> bool:
    return tensor in flow.initializers or tensor in flow.sparse or flow.producer.get(tensor, -1) in flow.constants


def _is_weight(flow: Dataflow, tensor: str) -> bool:
    """A constant that holds numbers: shapes and axes are int64 and no weights."""
    held = flow.initializers.get(tensor)
    if held is not None:
        return held.data_type not in (held.INT64, held.BOOL, held.STRING)
    return _is_constant(flow, tensor)


def _elements(seen: Sized, tensor: str) -> int:
    return math.prod(seen.shape(tensor) or ())
