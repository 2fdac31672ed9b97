"""Extract segments [start, stop) of a model as an ONNX graph of their own.

Invariants: names are the source's; ir_version, every opset_import and the metadata are kept; inputs and outputs follow
from the dataflow, per tensor, never from a caller's list. A subgraph returns what any later segment reads and what the
model returns; graph outputs that no segment makes (an input or a constant passed through) are returned by the last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from edgeengine.graph.dataflow import Dataflow, walk
from edgeengine.graph.dtypes import TO_ONNX
from edgeengine.graph.load import Model
from edgeengine.graph.pins import pinned
from edgeengine.spec.tensor import TensorSpec


@dataclass(frozen=True)
class Part:
    """What a subgraph takes and gives: node indices in order (constant nodes included) and tensor names."""

    start: int
    stop: int
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: tuple[str, ...]
    sparse: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """What is known of tensors, by name.

    `seen` are dtypes and concrete shapes from a run; `types` what static inference says of the model with free
    dimensions (it fills in a boundary's shape where the run agrees); `recorded` what the file records and no run
    contradicts; `pins` are the float16 boundary tensors (see `pins.py`).
    """

    seen: Mapping[str, TensorSpec]
    types: Mapping[str, onnx.ValueInfoProto]
    recorded: Mapping[str, onnx.ValueInfoProto]
    pins: Collection[str] = ()


def part(flow: Dataflow, segments: Sequence[Sequence[int]], start: int, stop: int) -> Part:
    """The dataflow of segments [start, stop)."""
    own = [n for segment in segments[start:stop] for n in segment]
    inside = set(own)
    made = [t for n in own for t in flow.writes[n]]
    result = set(flow.outputs)
    outputs = [t for t in made if t in result or any(r not in inside for r in flow.readers.get(t, ()))]
    if stop == len(segments):
        outputs += [t for t in dict.fromkeys(flow.outputs) if not flow.is_runtime(t)]
    here = set(made)
    read = dict.fromkeys(t for n in own for t in flow.reads[n])
    read.update(dict.fromkeys(t for t in outputs if t not in here))
    read.update(dict.fromkeys(_annotation_parameters(flow, here | read.keys())))
    constants, held = _constants(flow, read)
    order = [n for n in flow.constant_order if n in constants] + own
    inputs = [t for t in read if t not in here and t not in held and flow.producer.get(t) not in constants]
    return Part(
        start=start,
        stop=stop,
        nodes=tuple(order),
        inputs=tuple(sorted(inputs, key=flow.rank)),
        outputs=tuple(outputs),
        initializers=tuple(t for t in flow.initializers if t in held),
        sparse=tuple(t for t in flow.sparse if t in held),
    )


def extract(
    flow: Dataflow,
    what: Part,
    known: Known,
    weights: Mapping[str, onnx.TensorProto],
) -> onnx.ModelProto:
    """The ONNX model of one part. `weights` are the initializers as the part shall hold them, by name."""
    source = flow.model.proto
    result = onnx.ModelProto()
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if source.HasField(field):
            setattr(result, field, getattr(source, field))
    result.opset_import.extend(source.opset_import)
    result.metadata_props.extend(source.metadata_props)
    graph = result.graph
    graph.name = f"{source.graph.name or 'graph'}_{what.start}_{what.stop}"
    graph.node.extend(pinned((flow.nodes[n] for n in what.nodes), known.pins))
    graph.initializer.extend(weights[t] for t in what.initializers)
    graph.sparse_initializer.extend(flow.sparse[t] for t in what.sparse)
    graph.input.extend(_named(_value(t, known.seen[t], known.types.get(t))) for t in what.inputs)
    graph.output.extend(_value(t, known.seen[t], known.types.get(t)) for t in what.outputs)

    named = {t for n in what.nodes for t in (*flow.reads[n], *flow.writes[n])}
    border = set(what.inputs) | set(what.outputs)
    recorded = (v for v in known.recorded.values() if v.name in named - border)
    graph.value_info.extend(v for v in recorded if _agrees(v, known.seen.get(v.name)))
    graph.quantization_annotation.extend(q for q in source.graph.quantization_annotation if q.tensor_name in named)
    result.functions.extend(used_functions(flow.model, (flow.nodes[n] for n in what.nodes)))
    return result


def used_functions(model: Model, nodes: Iterable[onnx.NodeProto]) -> list[onnx.FunctionProto]:
    """The local functions that `nodes` call, directly, in bodies, or through other functions; in the source's order."""
    known = {(f.domain, f.name): f for f in model.proto.functions}
    used: set[tuple[str, str]] = set()
    todo = list(nodes)
    while todo:
        for node in walk([todo.pop()]):
            key = (node.domain, node.op_type)
            if key in known and key not in used:
                used.add(key)
                todo.extend(f for f in known[key].node)
    return [f for f in model.proto.functions if (f.domain, f.name) in used]


def _constants(flow: Dataflow, read: Iterable[str]) -> tuple[set[int], set[str]]:
    """The constant nodes and initializers (dense and sparse) that the tensors `read` come from."""
    nodes: set[int] = set()
    held: set[str] = set()
    todo = list(read)
    while todo:
        tensor = todo.pop()
        node = flow.producer.get(tensor)
        if tensor in flow.initializers or tensor in flow.sparse:
            held.add(tensor)
        elif node in flow.constants and node not in nodes:
            nodes.add(node)
            todo.extend(flow.reads[node])
    return nodes, held


def _annotation_parameters(flow: Dataflow, tensors: Collection[str]) -> Iterator[str]:
    """Scales and zero points that only a quantization annotation of one of `tensors` names: they come along."""
    for annotation in flow.model.proto.graph.quantization_annotation:
        if annotation.tensor_name in tensors:
            yield from (p.value for p in annotation.quant_parameter_tensor_names if p.value in flow.initializers)


def _value(name: str, seen: TensorSpec, inferred: onnx.ValueInfoProto | None) -> onnx.ValueInfoProto:
    """Element type and rank always; sizes only where inference states them and the run agrees."""
    if inferred is not None and _agrees(inferred, seen):
        value = onnx.ValueInfoProto()
        value.CopyFrom(inferred)
        return value
    return onnx.helper.make_tensor_value_info(name, TO_ONNX[seen.dtype], [None] * len(seen.shape))


def _named(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """Free dimensions of an input get names: a provider that needs static shapes fixes them by name."""
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.WhichOneof("value") is None:
            dim.dim_param = f"{value.name}[{axis}]"
    return value


def _agrees(value: onnx.ValueInfoProto, seen: TensorSpec | None) -> bool:
    """Whether declared type information fits what a run showed. What was not seen is not trusted."""
    declared = value.type.tensor_type
    if seen is None or not declared.HasField("shape") or declared.elem_type != TO_ONNX[seen.dtype]:
        return False
    dims = declared.shape.dim
    return len(dims) == len(seen.shape) and all(
        not d.HasField("dim_value") or d.dim_value == s for d, s in zip(dims, seen.shape, strict=True)
    )
