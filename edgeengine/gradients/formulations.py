"""Which of several equal formulations of a gradient is fastest here: each is measured for the node's geometry.

A candidate is the gradient graph of the node alone, forward pass included, at the sizes it has in the model. Nodes of the
same operator, attributes and sizes are measured once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from edgeengine.errors import UserError
from edgeengine.gradients.differentiate import Backward, Choice, differentiate, pruned
from edgeengine.gradients.looking import Look, Sizes, look
from edgeengine.graph.dtypes import TO_ONNX

# Times models (serialized, of the same inputs) in turn on the same feeds: nanoseconds, None for one that does not run there.
Race = Callable[[Sequence[bytes], Mapping[str, np.ndarray]], Sequence[float | None]]

_WEIGHTING, _LOSS = "formulation/weighting", "formulation/loss"


@dataclass(frozen=True)
class Chooser:
    """Measures with `race`; where the batch is free, at `examples`."""

    race: Race
    examples: int

    def forms(self, backward: Backward, seen: Look, constants: Mapping[str, onnx.TensorProto], opset: int) -> dict[str, str]:
        """The fastest formulation of every choice, as `CHOICE@OUTPUT`; none where not one of them runs."""
        found: dict[str, str] = {}
        known: dict[tuple[object, ...], str | None] = {}
        for item in backward.choices:
            for choice, formulations in item.formulations.items():
                if len(formulations) < 2:
                    continue
                key = (choice, formulations, item.wants, self._geometry(item.node, seen))
                if key not in known:
                    known[key] = self._fastest(item, choice, formulations, seen, constants, opset)
                if (best := known[key]) is not None:
                    found[f"{choice}@{item.node.output[0]}"] = best
        return found

    def _geometry(self, node: onnx.NodeProto, seen: Look) -> tuple[object, ...]:
        attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
        return node.op_type, attributes, *(self._shape(seen, t) for t in node.input if t)

    def _shape(self, seen: Look, tensor: str) -> tuple[int, ...]:
        return tuple(self.examples if d is None else d for d in seen.dims[tensor])

    def _fastest(
        self,
        item: Choice,
        choice: str,
        formulations: Sequence[str],
        seen: Look,
        constants: Mapping[str, onnx.TensorProto],
        opset: int,
    ) -> str | None:
        alone, feeds, wanted = self._alone(item, seen, constants, opset)
        sizes = Sizes.fixed({n: a.shape for n, a in feeds.items()}, feeds)
        try:
            inside = look(_in_inference_form(alone), sizes)
            models = [
                _candidate(alone, differentiate(alone.graph, opset, inside, _LOSS, wanted, {choice: f})) for f in formulations
            ]
        except UserError:
            return None  # a node that cannot stand alone keeps its default
        times = self.race(models, feeds)
        ran = [(t, f) for t, f in zip(times, formulations, strict=True) if t is not None]
        return min(ran)[1] if ran else None

    def _alone(
        self, item: Choice, seen: Look, constants: Mapping[str, onnx.TensorProto], opset: int
    ) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[str]]:
        """(the node and a loss of its first output, inputs to run it with, those that get gradients)."""
        node, rng = item.node, np.random.default_rng(0)
        names = list(dict.fromkeys(t for t in node.input if t))
        wanted = [t for t, wants in zip(node.input, item.wants, strict=True) if wants]
        held = [constants[t] for t in names if t in constants and t not in wanted]
        feeds: dict[str, np.ndarray] = {}
        for t in names:
            if t in constants and t not in wanted:
                continue
            shape, dtype = self._shape(seen, t), np.dtype(seen.dtypes[t])
            # Positive: some are variances. Integers are indices.
            feeds[t] = np.asarray(rng.random(shape) + 0.5 if dtype.kind == "f" else np.zeros(shape), dtype)
        y = node.output[0]
        feeds[_WEIGHTING] = rng.standard_normal(self._shape(seen, y)).astype(seen.dtypes[y])
        nodes = [
            node,
            helper.make_node("Mul", [y, _WEIGHTING], ["formulation/weighted"], name="weighted"),
            helper.make_node("ReduceSum", ["formulation/weighted"], [_LOSS], name="loss", keepdims=0),
        ]
        inputs = [helper.make_tensor_value_info(n, TO_ONNX[a.dtype.name], a.shape) for n, a in feeds.items()]
        loss = helper.make_tensor_value_info(_LOSS, TO_ONNX[seen.dtypes[y]], [])
        graph = helper.make_graph(nodes, "formulation", inputs, [loss], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feeds, wanted


def _in_inference_form(proto: onnx.ModelProto) -> onnx.ModelProto:
    """As the model was looked at: a batch normalization in training form has outputs that it is not asked for here."""
    twin = onnx.ModelProto()
    twin.CopyFrom(proto)
    for node in twin.graph.node:
        kept = [a for a in node.attribute if a.name != "training_mode"]
        del node.attribute[:]
        node.attribute.extend(kept)
    return twin


def _candidate(alone: onnx.ModelProto, backward: Backward) -> bytes:
    proto = onnx.ModelProto()
    proto.CopyFrom(alone)
    graph, outputs = proto.graph, [g.name for g in backward.gradients.values()]
    del graph.node[:], graph.output[:]
    graph.node.extend(pruned(backward.tape.nodes, outputs))
    graph.initializer.extend(backward.tape.constants.values())
    read = {t for n in graph.node for t in n.input}
    kept = [i for i in graph.input if i.name in read]
    del graph.input[:]
    graph.input.extend(kept)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return bytes(proto.SerializeToString())
