"""A plan: for one workload on one device, which subgraphs may run on which processors, and what that costs."""

from __future__ import annotations

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec.effects import Effects
from edgeengine.spec.processor import Processor
from edgeengine.spec.profile import Latency

SCHEMA = 1


class Step(msgspec.Struct, frozen=True):
    """An allowed move of a job: run `subgraph` on `processor`, which takes the job from position `start` to `stop`.

    `latency` is what the planner expects there, tail included; where that is a prediction, the true median lies between
    `bounds` (factors on it) with a probability of 90 %. `input_bytes` must be in the processor's memory first; the last step of a
    job leaves `output_bytes` there, which are wanted on the host.
    """

    subgraph: str
    start: int
    stop: int
    processor: str
    latency: Latency
    input_bytes: int = 0
    output_bytes: int = 0
    bounds: tuple[float, float] | None = None


class Guarantee(msgspec.Struct, frozen=True):
    """No job of the task misses its deadline while every subgraph stays within `margin` times its p99, on these conditions:
    its subgraphs run on `route`, (subgraph, processor) in order; of the guaranteed jobs waiting for a processor the one of
    least `priority` goes first, and before any other; releases come no faster than the period. `response_ns`: the latest
    finish after a release. With `firm` = (met, of) that holds for so many of any `of` consecutive jobs, spread evenly; the others
    are run as if without a guarantee.
    """

    priority: int
    route: tuple[tuple[str, str], ...]
    response_ns: int
    margin: float
    firm: tuple[int, int] | None = None


class Slot(msgspec.Struct, frozen=True):
    """Of job `job` of `task`, counted from the cycle's start, `subgraph` begins on `processor` after `start_ns`."""

    start_ns: int
    task: str
    job: int
    subgraph: str
    processor: str


class Timetable(msgspec.Struct, frozen=True):
    """When the subgraphs of all guaranteed tasks begin, in a cycle that repeats from time 0. Other subgraphs begin only in gaps
    that hold the longest of them; `beside_ns`: how long that is, by processor.
    """

    cycle_ns: int
    slots: tuple[Slot, ...]
    beside_ns: dict[str, int] = {}


class TaskPlan(msgspec.Struct, frozen=True):
    """The steps open to one task. A job starts at position 0 and is done at `segments`; several steps may leave a position.

    `bundle` is the bundle's hash ("" for a task given by latencies alone). `measured_ns` is the measured p50 of the chosen
    chain run end to end, `whole_ns` that of the best whole model on one allowed processor (`whole_processor`): the first is
    never larger. `around`: what a worker spends beside the run of each of its subgraphs (gathering inputs, handing on
    outputs), where measured. `basis` says what its latencies rest on: "measured", "stated" in the workload, "predicted" from a
    device profile, or "estimated" from little more than the number of operations. `verdict` is the admission verdict
    (guaranteed | best effort | refused), with the reason; `guarantee` what the first rests on. A task
    without steps may not run: its jobs are rejected.
    """

    task: str
    bundle: str
    segments: int
    steps: tuple[Step, ...]
    measured_ns: int | None = None
    whole_ns: int | None = None
    whole_processor: str = ""
    around: Latency | None = None
    basis: str = "measured"
    resident_bytes: int | None = None
    verdict: str = "best effort"
    reason: str = "no admission test ran"
    guarantee: Guarantee | None = None


class Guidance(msgspec.Struct, frozen=True, omit_defaults=True):
    """What planning worked out for the price policy, which reads it from the plan.

    `prices` by processor: what a nanosecond there is worth. `rank`: tasks, those that are kept first in front. `order`: by
    what a job tries its processors: "price" (price x latency), "latency", or "balanced" (first its place in a balanced static
    map). `earliest`: take the processor that ends first, not the first that is in time. `reserve`: plan a parent's jobs so
    that its children fit behind them. `margin_ns` is kept before each deadline, plans reach `horizon_ns` ahead. `tail`:
    expected latencies are p50 + tail (p99 - p50), in the classes high, normal, background. `policy`: a policy by name that a
    what-if preferred to all this, with the rule by which it drops.
    """

    prices: dict[str, float] = {}
    rank: tuple[str, ...] = ()
    order: str = "price"
    earliest: bool = False
    reserve: bool = True
    margin_ns: int | None = None
    horizon_ns: int | None = None
    tail: tuple[float, float, float] | None = None
    policy: str = ""
    drop: str = ""


class Plan(msgspec.Struct, frozen=True):
    """`device` is the device id the latencies hold for; `overheads` are the machine's own costs by name (see MachineRow).

    `effects` are left out of the latencies; what was measured on the device itself has them inside. With a `timetable`,
    guarantees rest on it in place of priorities.
    """

    schema: int
    device: str
    workload: str
    processors: tuple[Processor, ...]
    tasks: tuple[TaskPlan, ...]
    overheads: dict[str, Latency] = {}
    guidance: Guidance | None = None
    effects: Effects | None = None
    timetable: Timetable | None = None

    def task(self, name: str) -> TaskPlan:
        """Raises UserError for a task that the plan does not have."""
        for t in self.tasks:
            if t.task == name:
                return t
        known = ", ".join(t.task for t in self.tasks)
        raise UserError(f"the plan has no task {name!r} (it has {known or 'none'}): it was made for another workload; plan again")
