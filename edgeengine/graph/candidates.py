"""Write the candidate subgraphs of a segmentation, sharing one weights file: ranges of consecutive segments.

Every range is a candidate while they are few; of many segments the finest, the whole and the dyadic ranges come first,
up to a budget: what a plan may merge is then still anything by halves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from edgeengine.graph.extract import Known, Part, extract, part
from edgeengine.graph.features import features_of
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.infer import infer_types
from edgeengine.graph.shapes import Tensors
from edgeengine.graph.study import Study, op_counts
from edgeengine.graph.verify import VerifyJob
from edgeengine.graph.weights import as_held, lay_out, parameters
from edgeengine.spec.bundle import SubgraphSpec

# Candidates a bundle holds unless asked for another number: all ranges of ten segments.
CANDIDATES = 64

Range = tuple[int, int]


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


class Writer:
    """Writes subgraphs of one model into one folder; the weights once, when it is made, unless `beside` says that the model
    itself lies there: then its weights stay where they are."""

    def __init__(self, seen: Study, folder: Path, beside: bool = False):
        self.seen, self.folder = seen, folder
        if beside:
            self.weights = as_held(seen.flow)
        else:
            whole = part(seen.flow, [seen.flow.order], 0, 1)
            self.weights = lay_out(seen.flow, whole.initializers)
            self.weights.write(folder)
        self._denormals = self.weights.denormals(folder)
        self._types = _trusted(infer_types(seen.flow), seen.tensors)
        self._recorded = _trusted({v.name: v for v in seen.flow.model.proto.graph.value_info}, seen.tensors)

    def write(self, segmentation: Segmentation, ranges: Sequence[Range], stem: str = "s") -> Candidates:
        """Write segments [start, stop) as `<stem><start>_<stop>.onnx` for every range."""
        seen, flow, segments = self.seen, self.seen.flow, segmentation.segments
        parts = [part(flow, segments, start, stop) for start, stop in ranges]
        crossing = dict.fromkeys(t for p in parts for t in p.inputs if flow.is_runtime(t))
        pins = tuple(t for t in crossing if seen.tensors.at[t].dtype == "float16")
        known = Known(seen.tensors.at, self._types, self._recorded, pins)
        subgraphs = []
        for what in parts:
            name = f"{stem}{what.start}_{what.stop}"
            proto = extract(flow, what, known, self.weights.initializers)
            self.weights.adopt(proto)
            (self.folder / f"{name}.onnx").write_bytes(proto.SerializeToString(deterministic=True))
            subgraphs.append(_spec(seen, name, what, proto, self._denormals))
        return Candidates(seen, len(segments), self.folder, tuple(subgraphs), pins)


def ranges(segments: int, budget: int) -> list[Range]:
    """The ranges of segments a bundle holds, by start, then stop: at most `budget`, but always the finest and the whole."""
    chosen = dict.fromkeys((k, k + 1) for k in range(segments))
    chosen[0, segments] = None
    if segments * (segments + 1) // 2 <= budget:
        chosen |= dict.fromkeys((a, b) for a in range(segments) for b in range(a + 1, segments + 1))
        return sorted(chosen)
    lengths = [2**k for k in range(1, segments.bit_length())]
    dyadic = [(a, a + n) for n in lengths for a in range(0, segments - n + 1, n)]
    shifted = [(a, a + n) for n in lengths for a in range(n // 2, segments - n + 1, n)]
    for pair in (*dyadic, *shifted):
        if len(chosen) >= budget:
            break
        chosen[pair] = None
    return sorted(chosen)


def finest(segments: int) -> list[Range]:
    return [(k, k + 1) for k in range(segments)]


def _spec(seen: Study, name: str, what: Part, proto: onnx.ModelProto, denormals: Mapping[str, int]) -> SubgraphSpec:
    flow, at = seen.flow, seen.tensors.at
    macs, unknown = seen.macs(n for n in what.nodes if n not in flow.constants)
    elements, nbytes = parameters((flow.initializers[t] for t in what.initializers), proto.graph.node)
    return SubgraphSpec(
        name=name,
        file=f"{name}.onnx",
        start=what.start,
        stop=what.stop,
        inputs=tuple(at[t] for t in what.inputs),
        outputs=tuple(at[t] for t in what.outputs),
        nodes=len(what.nodes),
        macs=macs,
        parameters=elements,
        weight_bytes=nbytes,
        denormal_weights=sum(denormals.get(t, 0) for t in what.initializers),
        op_counts=op_counts(flow, what.nodes),
        unknown_ops=unknown,
        features=None if unknown else features_of(seen, what.nodes),
    )


def _trusted(types: Mapping[str, onnx.ValueInfoProto], tensors: Tensors) -> dict[str, onnx.ValueInfoProto]:
    """Types that also hold for the run with batch 2 (where there was one)."""

    def holds(name: str, value: onnx.ValueInfoProto) -> bool:
        dims, seen = value.type.tensor_type.shape.dim, tensors.batched_at.get(name)
        if seen is None or len(dims) != len(seen):
            return seen is None
        return all(not d.HasField("dim_value") or d.dim_value == s for d, s in zip(dims, seen, strict=True))

    return {name: value for name, value in types.items() if holds(name, value)}
