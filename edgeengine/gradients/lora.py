"""Low-rank adapters: beside a frozen matrix W of a linear layer, x W + scale (x A) B with trained A [in, r] and B [r, out].

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. B starts at zero, so the model starts as it is.
For serving, a version holds W + scale A B: the inference graph knows no adapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeengine.gradients.optimizers import next_of
from edgeengine.gradients.tape import Tape, Tensor


@dataclass(frozen=True)
class Adapter:
    """`a` and `b` are the names of A and B; `turned` says that the layer holds W as [out, in]."""

    weight: str
    shape: tuple[int, int]
    a: str
    b: str
    scale: float
    turned: bool


def insert(proto: onnx.ModelProto, ranks: Mapping[str, int], alpha: float | None, opset: int, seed: int = 0) -> list[Adapter]:
    """Add adapters beside the matrices in `ranks` (name -> rank), in place. `alpha` / rank is the scale, 1 by default."""
    graph = proto.graph
    nodes: list[onnx.NodeProto] = []
    adapters: list[Adapter] = []
    shapes = {t.name: tuple(t.dims) for t in graph.initializer}
    turns = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Transpose" and n.input[0] in ranks}
    for node in graph.node:
        read = node.input[1] if node.op_type in ("MatMul", "Gemm") and len(node.input) > 1 else ""
        weight = turns.get(read, read)
        if weight not in ranks:
            nodes.append(node)
            continue
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        rows, columns = shapes[weight]
        turned = bool(attributes.get("transB", 0)) != (read in turns)
        inside, outside = (columns, rows) if turned else (rows, columns)
        rank = ranks[weight]
        adapter = Adapter(weight, (rows, columns), f"{weight}/lora_a", f"{weight}/lora_b", (alpha or rank) / rank, turned)
        rng = np.random.default_rng([seed, *weight.encode()])
        start = (rng.standard_normal((inside, rank)) / np.sqrt(inside)).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(start, adapter.a))
        graph.initializer.append(numpy_helper.from_array(np.zeros((rank, outside), np.float32), adapter.b))
        nodes.extend(_beside(node, adapter, opset, attributes))
        adapters.append(adapter)
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    return adapters


def _beside(node: onnx.NodeProto, adapter: Adapter, opset: int, attributes: Mapping[str, object]) -> list[onnx.NodeProto]:
    """The layer, then its adapter, whose sum takes the layer's output name."""
    tape = Tape(f"{adapter.weight}/lora/", opset)
    own = onnx.NodeProto()
    own.CopyFrom(node)
    own.output[0] = f"{node.output[0]}/frozen"
    x, a, b, frozen = (Tensor(tape, n, "float32") for n in (node.input[0], adapter.a, adapter.b, own.output[0]))
    if attributes.get("transA", 0):
        x = x.transpose([1, 0])
    factor = attributes.get("alpha", 1.0)
    scale = adapter.scale * (factor if isinstance(factor, float) else 1.0)
    total = frozen + (x @ a) @ b * scale
    constants = [helper.make_node("Constant", [], [n], value=t) for n, t in tape.constants.items()]
    return [
        own,
        *constants,
        *tape.nodes,
        helper.make_node("Identity", [total.name], [node.output[0]], name=f"{total.name}/named"),
    ]


def merge_graph(adapters: list[Adapter], weights: Mapping[str, onnx.TensorProto], opset: int) -> onnx.ModelProto:
    """Takes every A and B; gives W + scale A B as W/next. `weights` are the frozen matrices, by reference or inside."""
    tape = Tape("merge/", opset)
    inputs, outputs = [], []
    for adapter in adapters:
        rank, outside = _rank(adapter, weights), adapter.shape[0 if adapter.turned else 1]
        inside = adapter.shape[1 if adapter.turned else 0]
        w, a, b = (Tensor(tape, n, "float32") for n in (adapter.weight, adapter.a, adapter.b))
        product = a @ b
        merged = w + (product.transpose([1, 0]) if adapter.turned else product) * adapter.scale
        tape.nodes.append(helper.make_node("Identity", [merged.name], [next_of(adapter.weight)], name=f"{merged.name}/named"))
        inputs += [
            helper.make_tensor_value_info(adapter.a, TensorProto.FLOAT, [inside, rank]),
            helper.make_tensor_value_info(adapter.b, TensorProto.FLOAT, [rank, outside]),
        ]
        outputs.append(helper.make_tensor_value_info(next_of(adapter.weight), TensorProto.FLOAT, adapter.shape))
    held = [weights[a.weight] for a in adapters] + list(tape.constants.values())
    graph = helper.make_graph(tape.nodes, "merge", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _rank(adapter: Adapter, weights: Mapping[str, onnx.TensorProto]) -> int | None:
    known = weights.get(adapter.a)
    return known.dims[1] if known is not None else None
