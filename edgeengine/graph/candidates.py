"""Write the candidate subgraphs of a segmentation: every contiguous range of segments, sharing one weights file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from edgeengine.graph.extract import Known, Part, extract, part
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.infer import infer_types
from edgeengine.graph.shapes import Tensors
from edgeengine.graph.study import Study, op_counts
from edgeengine.graph.verify import VerifyJob
from edgeengine.graph.weights import lay_out, parameters
from edgeengine.spec.bundle import SubgraphSpec


@dataclass(frozen=True)
class Candidates:
    """What lies in `folder`. `pins` are the float16 boundary tensors (see `pins.py`)."""

    seen: Study
    segments: int
    folder: Path
    subgraphs: tuple[SubgraphSpec, ...]
    pins: tuple[str, ...]

    def verify_job(self, original: str = "", fixed: Collection[str] = ()) -> VerifyJob:
        """Verify all of them; `original` and `fixed` as VerifyJob has them."""
        tensors = self.seen.tensors
        return VerifyJob(
            source=str(self.seen.flow.model.path),
            root=str(self.folder),
            segments=self.segments,
            subgraphs=self.subgraphs,
            inputs=tensors.inputs,
            outputs=tuple(dict.fromkeys(self.seen.flow.outputs)),
            shapes=tensors.fixed,
            batched=tensors.batched,
            pins=self.pins,
            original=original,
            fixed=tuple(fixed),
        )


def write_candidates(seen: Study, segmentation: Segmentation, folder: Path) -> Candidates:
    """Write segments [start, stop) as `s<start>_<stop>.onnx` for every start < stop, and the weights, into `folder`."""
    flow, segments = seen.flow, segmentation.segments
    last = len(segments)
    parts = [part(flow, segments, start, stop) for start in range(last) for stop in range(start + 1, last + 1)]
    whole = next(p for p in parts if p.stop - p.start == last)
    weights = lay_out(flow, whole.initializers)
    weights.write(folder)
    crossing = dict.fromkeys(t for p in parts for t in p.inputs if flow.is_runtime(t))
    pins = tuple(t for t in crossing if seen.tensors.at[t].dtype == "float16")
    known = Known(seen.tensors.at, _trusted(infer_types(flow), seen.tensors), pins)
    subgraphs = []
    for what in parts:
        proto = extract(flow, what, known, weights.initializers)
        weights.adopt(proto)
        (folder / _file(what)).write_bytes(proto.SerializeToString(deterministic=True))
        subgraphs.append(_spec(seen, what, proto))
    return Candidates(seen, last, folder, tuple(subgraphs), pins)


def _file(what: Part) -> str:
    return f"s{what.start}_{what.stop}.onnx"


def _spec(seen: Study, what: Part, proto: onnx.ModelProto) -> SubgraphSpec:
    flow, at = seen.flow, seen.tensors.at
    macs, unknown = seen.macs(n for n in what.nodes if n not in flow.constants)
    elements, nbytes = parameters((flow.initializers[t] for t in what.initializers), proto.graph.node)
    return SubgraphSpec(
        name=_file(what).removesuffix(".onnx"),
        file=_file(what),
        start=what.start,
        stop=what.stop,
        inputs=tuple(at[t] for t in what.inputs),
        outputs=tuple(at[t] for t in what.outputs),
        nodes=len(what.nodes),
        macs=macs,
        parameters=elements,
        weight_bytes=nbytes,
        op_counts=op_counts(flow, what.nodes),
        unknown_ops=unknown,
    )


def _trusted(types: Mapping[str, onnx.ValueInfoProto], tensors: Tensors) -> dict[str, onnx.ValueInfoProto]:
    """Inferred types that also hold for the run with batch 2 (where there was one)."""

    def holds(name: str, value: onnx.ValueInfoProto) -> bool:
        dims, seen = value.type.tensor_type.shape.dim, tensors.batched_at.get(name)
        if seen is None or len(dims) != len(seen):
            return seen is None
        return all(not d.HasField("dim_value") or d.dim_value == s for d, s in zip(dims, seen, strict=True))

    return {name: value for name, value in types.items() if holds(name, value)}
