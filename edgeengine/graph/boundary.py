"""What handing a tensor over costs besides its bytes, as a factor on them: tables of what ONNX Runtime does around it.

Inside one session convolutions keep their tensors in a blocked layout, and what follows them works in it; a cut there
reorders the tensor twice. A node that would have been fused into the one before it goes over the tensor once more. The
tables only rank cuts; what a cut costs in the end is measured.
"""

from __future__ import annotations

from edgeengine.graph.dataflow import Dataflow

# Reordered on both sides of a cut; one pass more for a lost fusion. A plain tensor is only written and read.
_PLAIN, _BLOCKED, _FUSED = 1, 3, 2

_ACTIVATIONS = frozenset({"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip", "HardSigmoid"})
_POOLS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
_MAKES_BLOCKED = frozenset({"Conv"})
_KEEPS_BLOCKED = _ACTIVATIONS | _POOLS | {"HardSwish", "Add", "Sum", "Mul", "Concat", "BatchNormalization", "Upsample", "Resize"}
_FUSED_AFTER = {
    "Conv": _ACTIVATIONS | {"BatchNormalization", "Add", "Mul"},
    "BatchNormalization": _ACTIVATIONS,
    "Gemm": frozenset({"Relu", "LeakyRelu", "Sigmoid", "Tanh", "Elu", "Softplus"}),
    "MatMul": frozenset({"Add", "Mul", "Div"}),
    "Transpose": frozenset({"MatMul", "FusedMatMul", "Gemm"}),
    "Sigmoid": frozenset({"Mul"}),
    "HardSigmoid": frozenset({"Mul"}),
    "Add": frozenset({"Relu", "Gelu", "LayerNormalization"}),
}


def factors(flow: Dataflow) -> dict[str, int]:
    """Run-time tensor -> how many times its bytes a boundary at it costs. Tensors that cost them once are left out."""
    blocked: set[str] = set()
    result: dict[str, int] = {}
    for i in flow.order:
        node = flow.nodes[i]
        if node.domain not in ("", "ai.onnx"):
            continue
        kind = node.op_type
        if kind in _MAKES_BLOCKED or (kind in _KEEPS_BLOCKED and any(t in blocked for t in node.input)):
            blocked.update(flow.writes[i])
        for tensor in flow.writes[i]:
            readers = {flow.nodes[r].op_type for r in flow.readers.get(tensor, ())}
            in_blocks = tensor in blocked and readers & (_MAKES_BLOCKED | _KEEPS_BLOCKED)
            factor = _BLOCKED if in_blocks else _PLAIN
            # A tensor with several readers is fused with none.
            if len(flow.readers.get(tensor, ())) == 1 and readers & _FUSED_AFTER.get(kind, frozenset()):
                factor += _FUSED
            if factor != _PLAIN:
                result[tensor] = factor
    return result
