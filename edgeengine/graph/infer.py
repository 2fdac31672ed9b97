"""Static types of boundary tensors with their free dimensions: what a run at one size cannot tell.

Inference runs on a skeleton of the model: no weights, no stored value_info (exporters bake sizes into it), output sizes
dropped. So it costs what the graph costs, and a size it states follows from the operators.
"""

from __future__ import annotations

import onnx
from onnx import shape_inference

from edgeengine.graph.dataflow import Dataflow
from edgeengine.graph.tensors import nbytes

_T = onnx.TensorProto
_DATA_BYTES = 1024  # larger initializers are weights; smaller ones may be shapes that inference reads


def infer_types(flow: Dataflow) -> dict[str, onnx.ValueInfoProto]:
    """Tensor name -> static type, symbolic names only where they are the model's own. Just the inputs where it fails."""
    model = flow.model
    try:
        inferred = shape_inference.infer_shapes(_skeleton(flow), data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        # Inference is optional: a run tells the types, and the sizes stay free.
        return {i.name: i for i in model.inputs}
    own = {d.dim_param for i in model.inputs for d in i.type.tensor_type.shape.dim if d.dim_param}
    types = {}
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value") and dim.dim_param not in own:
                dim.Clear()
        types[value.name] = value
    return types | {i.name: i for i in model.inputs}


def _skeleton(flow: Dataflow) -> onnx.ModelProto:
    source = flow.model.proto
    result = onnx.ModelProto(ir_version=source.ir_version)
    result.opset_import.extend(source.opset_import)
    result.functions.extend(source.functions)
    graph = result.graph
    graph.name = source.graph.name or "graph"
    graph.node.extend(flow.nodes[n] for n in (*flow.constant_order, *flow.order))
    graph.initializer.extend(t if nbytes(t) <= _DATA_BYTES else _placeholder(t) for t in flow.initializers.values())
    graph.sparse_initializer.extend(source.graph.sparse_initializer)
    graph.input.extend(source.graph.input)
    for output in source.graph.output:
        value = onnx.ValueInfoProto(name=output.name)
        if output.type.HasField("tensor_type"):
            value.type.tensor_type.elem_type = output.type.tensor_type.elem_type
        graph.output.append(value)
    return result


def _placeholder(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The same name, type and dims, its data nowhere."""
    result = _T(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=_T.EXTERNAL)
    result.external_data.add(key="location", value="none")
    return result
