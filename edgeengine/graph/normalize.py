"""Small rewrites of a model as read: what ONNX allows, and ONNX Runtime refuses or runs slower. None changes a result.

- An initializer that is also a graph input is not constant, neither folded nor pre-packed: it stops being an input.
- Node names are optional and may repeat; ONNX Runtime refuses repeats: a repeated name is dropped.
- A body may return a value of the graph around it; ONNX Runtime wants an Identity there: it gets one.
"""

from __future__ import annotations

from typing import Any

import onnx

from edgeengine.graph.tensors import bodies_of_attribute


def normalize(proto: onnx.ModelProto) -> None:
    """Rewrite `proto` in place."""
    _drop_initializer_inputs(proto.graph)
    _mend(proto.graph)


def _drop_initializer_inputs(graph: onnx.GraphProto) -> None:
    held = {i.name for i in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    dropped = {i.name for i in graph.input if i.name in held}
    if not dropped:
        return
    _keep(graph.input, [i for i in graph.input if i.name not in dropped])
    # Before IR 4 an initializer that nothing reads must be an input, or ONNX Runtime refuses the model.
    read = _names_read(graph)
    _keep(graph.initializer, [t for t in graph.initializer if t.name not in dropped or t.name in read])


def _names_read(graph: onnx.GraphProto) -> set[str]:
    """Names that nodes, outputs and annotations refer to, at any depth."""
    names = {o.name for o in graph.output}
    names.update(p.value for a in graph.quantization_annotation for p in a.quant_parameter_tensor_names)
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for body in bodies_of_attribute(attribute):
                names |= _names_read(body)
    return names


def _keep(field: Any, kept: list[Any]) -> None:
    del field[:]
    field.extend(kept)


def _mend(graph: onnx.GraphProto) -> None:
    names: set[str] = set()
    for node in graph.node:
        if node.name in names:
            node.name = ""
        elif node.name:
            names.add(node.name)
        for attribute in node.attribute:
            for body in bodies_of_attribute(attribute):
                _mend(body)
                _copy_outer_outputs(body)


def _copy_outer_outputs(body: onnx.GraphProto) -> None:
    defined = {i.name for i in body.input} | {t.name for t in body.initializer}
    defined |= {s.values.name for s in body.sparse_initializer}
    defined |= {name for node in body.node for name in node.output}
    for output in body.output:
        if output.name not in defined:
            copy = f"{output.name}/returned"
            body.node.append(onnx.helper.make_node("Identity", [output.name], [copy]))
            output.name = copy
