"""What the scheduler knows: tasks with the moves open to them, jobs, and processors with what runs there.

Times are nanoseconds since the start of the run. These objects are the scheduler's own: policies read them through the View,
drivers read ended jobs as records; only the core writes.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import Any

import msgspec

from edgeengine.scheduling.transfers import Transfers
from edgeengine.spec import Processor, Step, TaskPlan
from edgeengine.workload import Task as TaskSpec

RANK = {"high": 0, "normal": 1, "background": 2}
TRAIN_RANK = 3

BLOCKED, READY, RUNNING, ENDED = range(4)

MET, LATE, DROPPED, FAILED, REJECTED = "met", "late", "dropped", "failed", "rejected"
OUTCOMES = (MET, LATE, DROPPED, FAILED, REJECTED)

UNREACHABLE_NS = 1 << 62
_LEFT = attrgetter("left_ns")
ROUNDING_NS = 1_000  # rate_hz has no whole period in nanoseconds


class ProcessorState:
    """A processor now. `mask` has a bit per resource it holds while running."""

    __slots__ = ("available", "held_until_ns", "index", "job", "mask", "move", "name", "spec", "started_ns")

    def __init__(self, spec: Processor, index: int, mask: int):
        self.spec, self.name, self.index, self.mask = spec, spec.name, index, mask
        self.available = spec.usable
        self.job: Job | None = None
        self.move: Move | None = None
        self.started_ns: int | None = None
        self.held_until_ns = 0

    def remaining_ns(self, now: int) -> int:
        """Expected time until this processor is free, 0 when idle (and when it overran its estimate)."""
        if self.move is None:
            return 0
        begun = self.started_ns if self.started_ns is not None else now
        return max(begun + self.move.p50_ns - now, 0)


class Move:
    """One step of the plan: run `subgraph` on `processor`, from position `start` to `stop`. `left_ns`: the least p50 time from
    its beginning to the job's end. `moved_ns` is the part of its latency that moves tensors wherever the job was before;
    `switch_ns` what is added by the processor the job was on (see scheduling.transfers).
    """

    __slots__ = (
        "energy_mj", "left_ns", "moved_ns", "p50_ns", "p99_ns", "planned", "processor", "start", "stop", "subgraph", "switch_ns",
    )  # fmt: skip

    def __init__(self, step: Step, processor: ProcessorState, energy_mj: float | None = None):
        self.subgraph, self.start, self.stop = step.subgraph, step.start, step.stop
        self.processor, self.planned = processor, step.latency
        self.moved_ns = 0
        self.switch_ns: dict[str, int] = {}
        self.p50_ns, self.p99_ns = step.latency.p50_ns, step.latency.p99_ns
        self.energy_mj = energy_mj  # None where it is not known
        self.left_ns = UNREACHABLE_NS

    def left_from_ns(self, last: ProcessorState | None) -> int:
        """`left_ns` for a job whose tensors `last` made."""
        return self.left_ns + (self.switch_ns.get(last.name, 0) if last is not None and self.switch_ns else 0)

    def spent_mj(self, duration_ns: int) -> float | None:
        """Energy of a run: as the workload states it, else the processor's power while it ran; None where neither is known."""
        power_w = self.processor.spec.power_w
        return self.energy_mj if self.energy_mj is not None or power_w is None else power_w * duration_ns / 1e6

    def scale(self, factor: float) -> None:
        """Expect `factor` times what was planned."""
        moved_ns = self.moved_ns
        self.p50_ns, self.p99_ns = (round(ns * factor) + moved_ns for ns in (self.planned.p50_ns, self.planned.p99_ns))


class Task:
    """A task of the workload with its plan. `moves[p]` leave position p; `best_ns[p]` is the least p50 time left from there, and
    `stay_ns[i][p]` the same on the processor of index i alone. `fastest[p]`: the moves on available processors, by `left_ns`.
    `open`: every job is let in at once, whatever the others do.
    """

    __slots__ = (
        "best_ns",
        "children",
        "deadline_ns",
        "estimates",
        "fastest",
        "firm",
        "guarantee",
        "index",
        "last_index",
        "last_release_ns",
        "latest_only",
        "live",
        "move_of",
        "moved",
        "moves",
        "name",
        "next_release_ns",
        "open",
        "own_pattern",
        "parent",
        "parent_ended",
        "period_ns",
        "probability",
        "queue_limit",
        "rank",
        "recent",
        "refused",
        "released",
        "segments",
        "serial",
        "spec",
        "stay_ns",
        "tail",
        "train",
        "unstarted",
        "version",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        spec: TaskSpec,
        plan: TaskPlan,
        index: int,
        processors: dict[str, ProcessorState],
        transfers: Transfers | None = None,
    ):
        self.name, self.index, self.spec = spec.name, index, spec
        self.train = spec.is_training
        self.rank = TRAIN_RANK if self.train else RANK[spec.criticality]
        self.period_ns, self.deadline_ns = spec.period_ns, spec.relative_deadline_ns
        self.serial = bool(spec.carry)
        self.own_pattern = spec.has_pattern or spec.after is None
        self.probability = spec.probability
        self.latest_only, self.queue_limit = spec.latest_only, spec.queue_limit
        self.segments, self.guarantee = plan.segments, plan.guarantee
        self.firm, self.refused = spec.firm, not plan.steps
        limited = self.serial or self.latest_only or self.queue_limit is not None or self.guarantee is not None or self.refused
        self.open = not limited
        self.moved = transfers is not None and transfers.any
        self.moves: list[list[Move]] = [[] for _ in range(plan.segments + 1)]
        for step in plan.steps:
            if step.processor in processors:
                move = Move(step, processors[step.processor], _energy_mj(spec, step, plan.segments))
                if self.moved and transfers is not None:
                    move.moved_ns, move.switch_ns = transfers.fixed_ns(step, plan.segments), transfers.switch_ns(step)
                    move.scale(1.0)
                self.moves[step.start].append(move)
        self.move_of = {(m.subgraph, m.processor.name): m for moves in self.moves for m in moves}
        self.fastest: list[list[Move]] = []
        self.best_ns: list[int] = []
        self.estimates = 0  # how often the latencies or the processors that are there changed
        self.stay_ns = [[UNREACHABLE_NS] * (self.segments + 1) for _ in processors]
        self.refresh_best()
        self.parent: Task | None = None
        self.children: list[Task] = []
        self.parent_ended: dict[int, bool] = {}  # index -> parent finished well, for jobs of ours not released yet
        self.waiting: dict[int, Job] = {}  # index -> our job that waits for the parent's
        self.tail: Job | None = None  # last job of a serial task that has not ended
        self.live: dict[int, Job] = {}  # index -> our job that has not ended
        self.unstarted = 0
        self.last_index = -1  # of our own releases
        self.last_release_ns: int | None = None  # of a job let in, where the task is guaranteed
        self.released = 0
        self.recent: deque[bool] = deque(maxlen=0 if self.firm is None else self.firm[1] - 1)  # whether the last jobs were met
        self.next_release_ns: int | None = None
        self.version = ""

    def too_soon(self, release_ns: int) -> bool:
        """Whether a job comes sooner after the last one than the guarantee reckons with; a job that does not is noted."""
        if self.guarantee is None or self.period_ns is None:
            return False
        last = self.last_release_ns
        if last is not None and release_ns < last + self.period_ns - ROUNDING_NS:
            return True
        self.last_release_ns = release_ns
        return False

    def refresh_best(self) -> None:
        """Recompute what hangs on latencies, over the processors available now (backwards: a step only goes forward)."""
        best = [UNREACHABLE_NS] * self.segments + [0]
        self.stay_ns = [list(best) for _ in self.stay_ns]
        for position in range(self.segments - 1, -1, -1):
            for move in self.moves[position]:
                if move.processor.available:
                    best[position] = min(best[position], move.p50_ns + best[move.stop])
                    stay = self.stay_ns[move.processor.index]
                    stay[position] = min(stay[position], move.p50_ns + stay[move.stop])
        for moves in self.moves:
            for move in moves:
                move.left_ns = move.p50_ns + best[move.stop]
        if self.moved:
            self._add_switches(best)
        self.fastest = [sorted((m for m in moves if m.processor.available), key=_LEFT) for moves in self.moves]
        self.best_ns = best
        self.estimates += 1

    def _add_switches(self, best: list[int]) -> None:
        """Into `left_ns` and `best`, what changing memories on the way costs: a shortest path over (position, processor)."""
        names = [move.processor for moves in self.moves for move in moves]
        left: list[dict[str, int]] = [{} for _ in best[:-1]] + [dict.fromkeys((p.name for p in names), 0)]
        for position in range(self.segments - 1, -1, -1):
            here = [m for m in self.moves[position] if m.processor.available]
            for move in self.moves[position]:
                move.left_ns = min(move.p50_ns + left[move.stop].get(move.processor.name, UNREACHABLE_NS), UNREACHABLE_NS)
            for p in dict.fromkeys(names):
                left[position][p.name] = min((m.left_from_ns(p) for m in here), default=UNREACHABLE_NS)
            best[position] = min((m.left_ns for m in here), default=UNREACHABLE_NS)


def _energy_mj(spec: TaskSpec, step: Step, segments: int) -> float | None:
    """The step's share of the energy that the workload states for the whole model."""
    stated = spec.energy_mj.get(step.processor) if isinstance(spec.energy_mj, dict) else spec.energy_mj
    return None if stated is None else stated * (step.stop - step.start) / segments


class Job(msgspec.Struct, eq=False):
    """One release of a task; after its end, the record of it (`outcome`, `cause`, times).

    `urgency` is what goes first under EDF: by class, deadline, release. After `due_ns` it is of no use: its deadline, or
    UNREACHABLE_NS without one and for a training step, which is a step however late. `start_ns` is the start of its first
    subgraph, None if none began; `last_processor` made the tensors it reads next. `energy_mj` adds up over the subgraphs it ran,
    None where one of them is not known. `data` belongs to the driver; the core never looks.
    """

    task: Task
    index: int
    release_ns: int
    deadline_ns: int | None
    due_ns: int
    urgency: tuple[int, int, int, int, int]
    state: int = BLOCKED
    position: int = 0
    blockers: int = 0
    processor: ProcessorState | None = None
    move: Move | None = None
    last_processor: ProcessorState | None = None
    start_ns: int | None = None
    finish_ns: int | None = None
    outcome: str = ""
    cause: str = ""
    energy_mj: float | None = 0.0
    cancelling: bool = False
    previous: Job | None = None
    follower: Job | None = None
    data: Any = None

    @property
    def remaining_ns(self) -> int:
        """Least expected (p50) processing time left, waiting not counted."""
        return self.task.best_ns[self.position]

    @property
    def finished(self) -> bool:
        return self.outcome in (MET, LATE)

    def __repr__(self) -> str:
        return f"Job({self.task.name}#{self.index} at {self.position}/{self.task.segments} {self.outcome or self.state})"
