"""Pin float16 boundary tensors: put two Identities behind the node that makes one.

On the CPU ONNX Runtime computes most float16 nodes in float32 and, optimizations off or not, drops the rounding to
float16 between two of them. A cut restores it, so a model and its parts would differ by which tensors happen to be
rounded. Behind a pinned tensor the rounding always happens: the reference and every subgraph agree bit by bit. One
Identity is not enough: alone between nodes computed in float32 it is computed in float32 as well. With optimizations on
they disappear again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import onnx

_RAW, _ROUNDED = "/unrounded", "/rounded"


def pinned(nodes: Iterable[onnx.NodeProto], tensors: Collection[str]) -> Iterator[onnx.NodeProto]:
    """The nodes, each that makes one of `tensors` renaming it and followed by Identities that give the name back."""
    for node in nodes:
        made = [t for t in node.output if t and t in tensors]
        if not made:
            yield node
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.output[:] = [t + _RAW if t in made else t for t in node.output]
        yield copy
        for tensor in made:
            yield onnx.helper.make_node("Identity", [tensor + _RAW], [tensor + _ROUNDED])
            yield onnx.helper.make_node("Identity", [tensor + _ROUNDED], [tensor])
