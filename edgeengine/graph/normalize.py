"""Small rewrites of a model as read: what ONNX allows, and ONNX Runtime refuses or runs slower. None changes a result.

- An initializer that is also a graph input is not constant, so it is neither folded nor pre-packed: it stops being an
input. - Node names are optional and may repeat; ONNX Runtime refuses repeats: a repeated name is dropped. - A body may
return a value of the graph around it; ONNX Runtime wants an Identity there: it gets one.
"""

from __future__ import annotations

import onnx

from edgeengine.graph.tensors import bodies_of_attribute


def normalize(proto: onnx.ModelProto) -> None:
    """Rewrite `proto` in place."""
    _drop_initializer_inputs(proto.graph)
    _mend(proto.graph)


def _drop_initializer_inputs(graph: onnx.GraphProto) -> None:
    held = {i.name for i in graph.initializer} | {s.values.name for s in graph.sparse_initializer}
    real = [i for i in graph.input if i.name not in held]
    if len(real) != len(graph.input):
        del graph.input[:]
        graph.input.extend(real)


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
