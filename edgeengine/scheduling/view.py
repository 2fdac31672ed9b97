"""What a policy sees, and what a policy is."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from edgeengine.events import AnyAction
from edgeengine.scheduling.job import Job, Move, ProcessorState, Task
from edgeengine.scheduling.timetable import Slots
from edgeengine.spec import Guidance, Timetable


class View:
    """The scheduler's state, complete and read-only: change nothing you reach through it.

    `ready`: jobs that may start their next subgraph, in the order they became ready. `processors` by index, `tasks` by index.
    `busy_mask`: bits of the resources now held; a processor can start iff its `mask` shares no bit with it (see `free`).
    `guidance` is what the plan says to policies that follow it; `guaranteed`: some task is; `slots`: its timetable, if guarantees
    rest on one. `refreshed` counts lost and returned processors and new estimates.
    """

    __slots__ = (
        "_groups", "_jobs", "all_mask", "busy_mask", "guaranteed", "guidance", "processors", "ready", "refreshed", "slots",
        "tasks",
    )  # fmt: skip

    def __init__(
        self, tasks: list[Task], processors: list[ProcessorState], ready: dict[Job, None], jobs: dict[Job, None],
        guidance: Guidance | None = None, timetable: Timetable | None = None,
    ):  # fmt: skip
        self.tasks, self.processors, self._jobs = tasks, processors, jobs
        self.ready: Collection[Job] = ready.keys()
        self.guidance = guidance
        self.guaranteed = any(t.guarantee is not None for t in tasks)
        self.busy_mask, self.all_mask, self.refreshed = 0, 0, 0
        for p in processors:
            self.all_mask |= p.mask
        self._groups = _groups(tasks, processors)
        self.slots = None if timetable is None else Slots(timetable, processors, self._groups)

    @property
    def jobs(self) -> Iterable[Job]:
        """All that have not ended: ready, running, and waiting for a parent or a previous job."""
        return self._jobs

    @property
    def changes(self) -> int:
        """Grows with every release, end of a job, lost or returned processor and new estimate: a plan made at an equal count was
        made for the same jobs.
        """
        return 2 * sum(t.released for t in self.tasks) - len(self._jobs) + self.refreshed

    def job(self, task: Task, index: int) -> Job | None:
        """A job that has not ended."""
        return task.live.get(index)

    def running(self) -> list[ProcessorState]:
        """Processors that run something: `.job`, `.move`, `.started_ns`, `.remaining_ns(now)`."""
        return [p for p in self.processors if p.job is not None]

    def free(self, now: int) -> list[ProcessorState]:
        """Processors on which a subgraph could start now."""
        busy = self.busy_mask
        return [p for p in self.processors if p.available and not (p.mask & busy) and p.held_until_ns <= now]

    def group_mask(self, processor: ProcessorState) -> int:
        """The resources of all processors that exclude this one, directly or through a third that some task may use."""
        return self._groups[processor.index]

    def can_start(self, processor: ProcessorState, now: int, busy: int) -> bool:
        """As `free`, with `busy` in place of the mask: a policy adds what it starts."""
        return processor.available and not (processor.mask & busy) and processor.held_until_ns <= now

    def moves(self, job: Job) -> list[Move]:
        """Alternatives for the job's next subgraph. Where a move leads to (`stop`), the chain goes on."""
        return job.task.moves[job.position]

    def location(self, job: Job) -> ProcessorState | None:
        """The processor that made the tensors the job reads next; None at its inputs."""
        return job.last_processor

    def next_release_ns(self, task: Task) -> int | None:
        """The task's next known nominal release; None where releases cannot be foreseen."""
        return task.next_release_ns


def _groups(tasks: list[Task], processors: list[ProcessorState]) -> list[int]:
    used = {m.processor for t in tasks for moves in t.moves for m in moves}
    masks = [p.mask for p in processors]
    for p in processors:
        joined = [q for q in processors if p in used and q in used and masks[p.index] & masks[q.index]]
        whole = masks[p.index]
        for q in joined:
            whole |= masks[q.index]
        for q in processors:
            if q in used and masks[q.index] & whole and p in used:
                masks[q.index] = whole
    return masks


class Policy(Protocol):
    """Turns the view into actions. Called under the scheduler's lock: be quick, keep no clock, draw no unseeded number.

    Asked whenever something changed and a job is ready; a Hold or Wake brings a Time event, hence another chance. A policy that
    has a method `prepare(view)` is given the view once, before anything happens: time that no job waits for.
    """

    name: str

    def decide(self, view: View, now: int) -> list[AnyAction]: ...
