"""What a graph asks of a processor: work by class, bytes, operator counts. Device-independent; a cost model prices it."""

from __future__ import annotations

import msgspec


class Features(msgspec.Struct, frozen=True):
    """Sums over the operators of a graph, as a runtime fuses them: batch normalization, ReLU, reshapes and quantization
    cost nothing of their own.

    `dense` … `attention` are multiply-accumulates by class: convolutions with a window, 1x1 convolutions, grouped and
    depthwise ones, products with constant weights, products of two activations. `parameters` are weight elements, `read` and
    `written` the activation elements that operators take and make. `convolutions` counts the depthwise ones too;
    `elementwise` also counts pooling, normalizations and reductions, `activations` the functions that are not fused.
    """

    dense: int = 0
    pointwise: int = 0
    grouped: int = 0
    depthwise: int = 0
    fc: int = 0
    attention: int = 0
    parameters: int = 0
    read: int = 0
    written: int = 0
    convolutions: int = 0
    depthwise_convolutions: int = 0
    matmuls: int = 0
    elementwise: int = 0
    activations: int = 0
    moves: int = 0

    @property
    def macs(self) -> int:
        return self.dense + self.pointwise + self.grouped + self.depthwise + self.fc + self.attention

    @property
    def operators(self) -> int:
        return self.convolutions + self.matmuls + self.elementwise + self.activations + self.moves

    def __add__(self, other: Features) -> Features:
        return Features(*(a + b for a, b in zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)))

    def __sub__(self, part: Features) -> Features:
        """What is left without a part, never below nothing: parameters that parts share count in each."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(part), strict=True)
        return Features(*(max(a - b, 0) for a, b in pairs))
