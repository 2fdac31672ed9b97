"""One operator, its inputs, and what torch makes of them: the material of the gradient tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeengine.gradients.differentiate import differentiate, pruned
from edgeengine.gradients.looking import Sizes
from edgeengine.gradients.working_copy import expanded, opset_of, working_copy
from edgeengine.graph.dtypes import TO_ONNX
from edgeengine.graph.session import create

Array = np.ndarray


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """`nodes` are (operator, inputs, outputs, attributes) that give "Y". `inputs` of floats get gradients, `constants` none.

    `torch` computes Y from the inputs as float64 tensors; None: only finite differences are compared.
    """

    name: str
    nodes: Sequence[tuple[str, list[str], list[str], dict[str, Any]]]
    inputs: dict[str, Array]
    torch: Callable[..., Any] | None
    constants: dict[str, Array] = field(default_factory=dict)
    opset: int = 20
    forms: dict[str, str] = field(default_factory=dict)
    batch: tuple[str, ...] = ()  # inputs whose first axis varies
    tolerance: float = 2e-5
    shape: tuple[int, ...] | None = None  # of Y, where torch does not tell
    kinked: bool = False  # differences across a kink are no slope

    def weighting(self, shape: tuple[int, ...]) -> Array:
        return normal(*shape, seed=3)


def model_of(case: Case) -> onnx.ModelProto:
    """The case's nodes, then L = sum(Y * R) with a constant R (the input "weighting")."""
    nodes = [helper.make_node(op, i, o, name=f"n{k}", **a) for k, (op, i, o, a) in enumerate(case.nodes)]
    nodes.append(helper.make_node("Mul", ["Y", "weighting"], ["YR"], name="weighted"))
    nodes.append(helper.make_node("ReduceSum", ["YR"], ["L"], name="loss", keepdims=0))
    inputs = [
        helper.make_tensor_value_info(
            n, TO_ONNX[a.dtype.name], ["batch" if n in case.batch and k == 0 else d for k, d in enumerate(a.shape)]
        )
        for n, a in case.inputs.items()
    ]
    inputs.append(helper.make_tensor_value_info("weighting", TensorProto.FLOAT, None))
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in case.constants.items()]
    graph = helper.make_graph(nodes, "case", inputs, [helper.make_tensor_value_info("L", TensorProto.FLOAT, [])], constants)
    opsets = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10 if case.opset > 20 else 8)


def loss_and_gradients(case: Case, shape: tuple[int, ...]) -> tuple[Callable[[dict[str, Array]], float], dict[str, Array]]:
    """(the loss as a function of the inputs, gradients at the case's inputs). `shape` is that of Y."""
    proto = working_copy(model_of(case), case.name)
    feeds = {**case.inputs, "weighting": case.weighting(shape)}
    once = {n: a.shape for n, a in feeds.items()}
    again = {n: (s[0] + 1, *s[1:]) if n in case.batch or (n == "weighting" and case.batch) else s for n, s in once.items()}
    parameters = [n for n, a in case.inputs.items() if a.dtype == np.float32]
    values = {n: a for n, a in case.inputs.items() if a.dtype != np.float32}
    seen = expanded(proto, Sizes(once, again, values if not case.batch else {}), parameters)
    backward = differentiate(proto.graph, opset_of(proto), seen, "L", parameters, case.forms)
    found = {p: g.name for p, g in backward.gradients.items()}
    graph = onnx.GraphProto()
    graph.CopyFrom(proto.graph)
    del graph.node[:], graph.output[:]
    graph.node.extend(pruned(backward.tape.nodes, {"L", *found.values()}))
    graph.initializer.extend(backward.tape.constants.values())
    graph.output.extend(onnx.ValueInfoProto(name=n) for n in dict.fromkeys(["L", *found.values()]))
    session = create(
        helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version).SerializeToString(),
        optimized=False,
    )
    results = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))

    def loss(inputs: dict[str, Array]) -> float:
        return float(session.run(["L"], {**feeds, **inputs})[0])

    return loss, {p: results[g] for p, g in found.items()}
