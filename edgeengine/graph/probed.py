"""Cut by what a processor takes: the whole model is loaded there once, and the nodes it leaves decide (see support.py)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping

import onnx

from edgeengine.bundle import Bundle
from edgeengine.errors import PlanInfeasible
from edgeengine.graph.candidates import Writer, finest
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.load import Model
from edgeengine.graph.manifest import encode, manifest_of
from edgeengine.graph.support import LEAST_COST, Support

# Loads the only subgraph of a trial bundle on a processor: node name -> why that leaves the node to another provider.
Left = Callable[[Bundle], Mapping[str, str]]

# ONNX Runtime names a node that its layout transformation made of another after it.
_DERIVED = re.compile(r"_token_\d+$")


def by_probe(original: Model, writer: Writer, left: Left, least_cost: float = LEAST_COST) -> Segmentation:
    """The maximal regions that the processor takes, and what lies between them.

    Raises PlanInfeasible where there is no region worth it.
    """
    seen = writer.seen
    refused = _refused(original, writer, left)
    segmentation, taken = Support(seen, refused).segmentation(least_cost)
    if not any(taken):
        reasons = "; ".join(dict.fromkeys(refused.values())) or "every region is too small to pay for handing it over"
        raise PlanInfeasible(f"{original.path}: the processor takes no part of it: {reasons}")
    who = ", ".join("the processor" if t else "another" for t in taken)
    note = f"the cut at what the processor takes: {len(refused)} of {len(seen.flow.nodes)} nodes are left; runs on {who}"
    return Segmentation(segmentation.segments, (*segmentation.notes, note))


def _refused(original: Model, writer: Writer, left: Left) -> dict[int, str]:
    """Node (index) -> why the processor leaves it. Names may be missing or not unique in the model: the trial has its own."""
    flow = writer.seen.flow
    trial = writer.write(writer.seen.cuts.by_count(1), finest(1), stem="probe")
    file = writer.folder / trial.subgraphs[0].file
    proto = onnx.load(file, load_external_data=False)
    maker = {t: i for i, node in enumerate(flow.nodes) for t in node.output if t}
    for node in proto.graph.node:
        made = next((maker[t] for t in node.output if t in maker), None)
        node.name = f"n{made}" if made is not None else ""
    file.write_bytes(proto.SerializeToString(deterministic=True))
    manifest = manifest_of(original, trial)
    try:
        told = left(Bundle(writer.folder, hashlib.sha256(encode(manifest)).hexdigest(), manifest))
    finally:
        file.unlink()
    known = {f"n{i}": i for i in maker.values()}
    refused = {known.get(_DERIVED.sub("", name)): reason for name, reason in told.items()}
    return {node: reason or "it is left to another provider" for node, reason in refused.items() if node is not None}
