"""The scheduler's language: events go in, actions come out; both have a JSON form for the event log.

Times are nanoseconds since the start of the run. Events name jobs by (task, index), so that a log can be replayed into a
fresh scheduler; actions name them the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Event(msgspec.Struct, tag_field="event", gc=False):
    at_ns: int


class Released(Event, tag="released", gc=False, omit_defaults=True):
    """`release_ns` is the nominal time, however late the event. `deadline_ns` is absolute; None = the task's own.

    `more`: other releases follow at once; the policy is asked after the last of them, so that it sees all.
    """

    task: str
    index: int
    release_ns: int
    deadline_ns: int | None = None
    more: bool = False


class InputReplaced(Event, tag="input_replaced", gc=False):
    """A waiting job got newer input; it keeps its release and deadline."""

    task: str
    index: int


class Cancelled(Event, tag="cancelled", gc=False, omit_defaults=True):
    """The job is dropped, with this cause: now if it waits, else when its running subgraph has ended."""

    task: str
    index: int
    cause: str = "cancelled"


class Started(Event, tag="started", gc=False):
    task: str
    index: int
    subgraph: str
    processor: str


class Finished(Event, tag="finished", gc=False):
    """A subgraph ended. `outcome` is "done", or "cancelled" for a run that was cut short."""

    task: str
    index: int
    subgraph: str
    processor: str
    outcome: str
    duration_ns: int


class Failed(Event, tag="failed", gc=False, omit_defaults=True):
    """`lost`: so did the processor, which starts nothing more until it is back."""

    task: str
    index: int
    subgraph: str
    processor: str
    cause: str
    lost: bool = False


class ProcessorLost(Event, tag="processor_lost", gc=False):
    processor: str
    cause: str


class ProcessorBack(Event, tag="processor_back", gc=False):
    processor: str


class EstimateChanged(Event, tag="estimate_changed", gc=False):
    """Whatever runs on the processor from now on is expected to take `factor` times what was planned."""

    processor: str
    factor: float


class VersionReady(Event, tag="version_ready", gc=False):
    task: str
    version: str


class Time(Event, tag="time", gc=False):
    """A wake-up that was asked for, or nothing but the passing of time."""


class Action(msgspec.Struct, tag_field="action", gc=False):
    pass


class Start(Action, tag="start", gc=False):
    """Run `subgraph` of the job on `processor` now."""

    task: str
    index: int
    subgraph: str
    processor: str


class Cancel(Action, tag="cancel", gc=False):
    """The job's running subgraph is of no use any more: cut it short where that can be done, else let it end. Then the job is
    dropped.
    """

    task: str
    index: int
    cause: str = "cancelled"


class Drop(Action, tag="drop", gc=False):
    task: str
    index: int
    cause: str


class Reject(Action, tag="reject", gc=False):
    task: str
    index: int
    cause: str


class Hold(Action, tag="hold", gc=False):
    """Start nothing on `processor` before `until_ns`."""

    processor: str
    until_ns: int


class Wake(Action, tag="wake", gc=False):
    """Send a Time event at `at_ns`, at the latest."""

    at_ns: int


AnyEvent = (
    Released | InputReplaced | Cancelled | Started | Finished | Failed | ProcessorLost | ProcessorBack
    | EstimateChanged | VersionReady | Time
)  # fmt: skip
AnyAction = Start | Cancel | Drop | Reject | Hold | Wake


class LogLine(msgspec.Struct):
    """One step of the scheduler: the event, and what it answered."""

    event: AnyEvent
    actions: list[AnyAction]


_ENCODER = msgspec.json.Encoder()


def dump_log(lines: Sequence[LogLine]) -> bytes:
    """JSON lines, one per step; equal logs give equal bytes."""
    return _ENCODER.encode_lines(lines)


def load_log(data: bytes) -> list[LogLine]:
    return msgspec.json.Decoder(LogLine).decode_lines(data)
