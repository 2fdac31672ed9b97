"""Quantize-dequantize groups: what makes a boundary carry the quantized tensor, a quarter of the bytes.

A DequantizeLinear belongs to the operator that reads it, a QuantizeLinear to the operator before it. A dequantizer with
several readers ties them together, so every further reader gets one of its own (`private`). Compilers for accelerators
look for exactly these groups: {DQ …, operator, Q}.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx

_DOMAINS = ("", "ai.onnx", "com.microsoft")


def is_quantizer(node: onnx.NodeProto) -> bool:
    return node.op_type == "QuantizeLinear" and node.domain in _DOMAINS


def is_dequantizer(node: onnx.NodeProto) -> bool:
    return node.op_type == "DequantizeLinear" and node.domain in _DOMAINS


def private(nodes: Sequence[onnx.NodeProto], outputs: Collection[str]) -> tuple[tuple[onnx.NodeProto, ...], dict[str, str]]:
    """(the nodes, each dequantizer read by one node at most; name of a copied tensor -> the tensor it copies).

    Copies come last, so that the other nodes keep their index. A reader that reads a dequantized tensor inside its bodies
    shares the original one. `outputs` are the graph's: a tensor returned by the graph keeps its maker to itself.
    """
    makers = {n.output[0]: n for n in nodes if is_dequantizer(n) and n.output}
    taken = {t: t in outputs for t in makers}
    used = {t for n in nodes for t in n.output}
    result = list(nodes)
    copies: dict[str, str] = {}
    for i, node in enumerate(nodes):
        mine: dict[str, str] = {}
        for tensor in dict.fromkeys(t for t in node.input if t in makers):
            if not taken[tensor]:
                taken[tensor] = True
                continue
            name = f"{tensor}/for_{i}"
            while name in used:
                name += "_"
            copy = onnx.NodeProto()
            copy.CopyFrom(makers[tensor])
            copy.output[:] = [name]
            copy.name = ""
            result.append(copy)
            copies[name], mine[tensor] = tensor, name
        if mine:
            reader = onnx.NodeProto()
            reader.CopyFrom(node)
            reader.input[:] = [mine.get(t, t) for t in node.input]
            result[i] = reader
    return tuple(result), copies


def glued(
    nodes: Sequence[onnx.NodeProto], order: Sequence[int], producer: Mapping[str, int], readers: Mapping[str, Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """Pairs (maker, reader) that a group holds together, among the run-time nodes `order`."""
    runtime = frozenset(order)
    for i in order:
        node = nodes[i]
        if is_quantizer(node) and producer.get(node.input[0]) in runtime:
            yield producer[node.input[0]], i
        if is_dequantizer(node):
            yield from ((i, reader) for reader in readers.get(node.output[0], ()))
