"""A run as a Perfetto trace (protobuf): a track per processor with what ran there, and one per task with its
releases and misses.

Opens in ui.perfetto.dev and in trace_processor. Source of the format: Perfetto's "Synthetic track events" documentation.
"""

from __future__ import annotations

from typing import Any

from edgeengine.errors import UserError
from edgeengine.reporting.report.run import MET, Run

_SEQUENCE = 1  # all packets come from one writer


def perfetto_trace(run: Run) -> bytes:
    """The trace's bytes. Raises UserError where the package perfetto is missing."""
    try:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent
    except ImportError as e:
        raise UserError("a Perfetto trace needs perfetto: pip install 'edgeengine[report]'") from e
    trace, events = Trace(), []
    tracks = {("processor", p.name): i for i, p in enumerate(run.plan.processors, 1)}
    tracks |= {("task", row["task"]): i for i, row in enumerate(run.document["tasks"], len(tracks) + 1)}
    for (kind, name), uuid in tracks.items():
        packet = trace.packet.add()
        packet.track_descriptor.uuid, packet.track_descriptor.name = uuid, f"{kind} {name}"
    begin, end = TrackEvent.Type.TYPE_SLICE_BEGIN, TrackEvent.Type.TYPE_SLICE_END
    for s in run.spans:
        track = tracks["processor", s.processor]
        about = {"subgraph": s.subgraph, "outcome": s.outcome}
        events += [(s.start_ns, begin, track, f"{s.task} #{s.index}", about), (s.end_ns, end, track, "", {})]
    for j in run.jobs:
        # Jobs of a task may overlap, slices of one track may not: a job is shown by instants.
        track, instant = tracks["task", j.task], TrackEvent.Type.TYPE_INSTANT
        events.append((j.release_ns, instant, track, f"#{j.index} released", {"outcome": j.outcome, "cause": j.cause}))
        if j.outcome != MET:
            at_ns = j.deadline_ns if j.deadline_ns is not None else j.end_ns
            events.append((at_ns, instant, track, f"#{j.index} {j.outcome}", {"cause": j.cause}))
    for at_ns, kind, track, name, about in sorted(events, key=lambda e: (e[0], e[1] != end)):
        _add(trace, at_ns, kind, track, name, about)
    return bytes(trace.SerializeToString())


def _add(trace: Any, at_ns: int, kind: int, track: int, name: str, about: dict[str, str]) -> None:
    packet = trace.packet.add()
    packet.timestamp, packet.trusted_packet_sequence_id = at_ns, _SEQUENCE
    packet.track_event.type, packet.track_event.track_uuid = kind, track
    if name:
        packet.track_event.name = name
    for key, value in about.items():
        if value:
            annotation = packet.track_event.debug_annotations.add()
            annotation.name, annotation.string_value = key, value
