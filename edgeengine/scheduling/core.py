"""The scheduler core: `step(event) -> actions`. No I/O, no threads, no clock: `event.at_ns` is all it knows of time.

Invariants: a job ends exactly once, with a cause unless it was met; no two running subgraphs share a resource; a subgraph starts
only after its job's previous one, the parent's job (`after`) and, with carried state, the previous job have ended.
"""

from __future__ import annotations

from collections.abc import Callable

from edgeengine.errors import InternalError, UserError
from edgeengine.events import (
    AnyAction,
    AnyEvent,
    Cancel,
    Cancelled,
    Drop,
    EstimateChanged,
    Failed,
    Finished,
    Hold,
    InputReplaced,
    LogLine,
    ProcessorBack,
    ProcessorLost,
    Reject,
    Released,
    Start,
    Started,
    Time,
    VersionReady,
)  # fmt: skip
from edgeengine.scheduling.job import (
    DROPPED,
    FAILED,
    READY,
    REJECTED,
    RUNNING,
    UNREACHABLE_NS,
    Job,
    ProcessorState,
    Task,
)  # fmt: skip
from edgeengine.scheduling.lifecycle import Lifecycle
from edgeengine.scheduling.view import Policy
from edgeengine.spec import Plan
from edgeengine.workload import Workload


class Scheduler(Lifecycle):
    """Feed it every event once, in time order; do what it answers.

    After each `step`, `ended` holds the jobs that ended in it. `seed` decides which children with a `probability` are drawn.
    `record` is given every step: replayed into a fresh scheduler they yield the same actions.
    """

    def __init__(
        self, workload: Workload, plan: Plan, policy: Policy, *,
        seed: int = 0, record: Callable[[LogLine], object] | None = None,
    ):  # fmt: skip
        super().__init__(workload, plan, seed)
        self._policy = policy
        prepare = getattr(policy, "prepare", None)
        if prepare is not None:
            prepare(self._view)
        self._undecided = False  # releases came for which the policy was not asked yet
        self._record = record
        self._handlers = {
            Released: self._released, Started: self._started, Finished: self._finished, Failed: self._failed,
            Cancelled: self._cancelled, InputReplaced: self._input_replaced, ProcessorLost: self._processor_lost,
            ProcessorBack: self._processor_back, EstimateChanged: self._estimate_changed,
            VersionReady: self._version_ready, Time: self._time,
        }  # fmt: skip

    def step(self, event: AnyEvent) -> list[AnyAction]:
        """Take one event; returns what to do now, in order."""
        self._now = event.at_ns
        self.ended = []
        actions: list[AnyAction] = []
        # Handlers say whether anything changed that a policy could act on.
        if self._handlers[type(event)](event, actions):  # type: ignore[operator]
            self._undecided = False
            self._decide(actions)
        if self._record is not None:
            self._record(LogLine(event, actions))
        return actions

    def release(self, task: Task, index: int, release_ns: int, at_ns: int, more: bool) -> list[AnyAction]:
        """Step with a Released event. This and the next two are for a driver that knows tasks and processors, not only names."""
        if self._record is not None:
            return self.step(Released(at_ns, task.name, index, release_ns, None, more))
        self._now = at_ns
        self.ended = []
        actions: list[AnyAction] = []
        if self._let_in(task, index, release_ns, None):
            self._undecided = True
        if self._undecided and not more:
            self._undecided = False
            self._decide(actions)
        return actions

    def start(self, p: ProcessorState, at_ns: int) -> None:
        """Step with the Started event of the run that was given to `p`."""
        job = p.job
        assert job is not None
        if self._record is not None and p.move is not None:
            self.step(Started(at_ns, job.task.name, job.index, p.move.subgraph, p.name))
        p.started_ns = at_ns
        if job.start_ns is None:
            job.start_ns = at_ns

    def finish(self, p: ProcessorState, at_ns: int, duration_ns: int) -> list[AnyAction]:
        """Step with the Finished event of the run on `p`, done after `duration_ns`."""
        job, move = p.job, p.move
        assert job is not None and move is not None
        if self._record is not None:
            return self.step(Finished(at_ns, job.task.name, job.index, move.subgraph, p.name, "done", duration_ns))
        self._now = at_ns
        self.ended = []
        actions: list[AnyAction] = []
        self._vacate(p, job)
        self._complete(job, move, duration_ns)
        if self._ready:
            self._decide(actions)
        self._undecided = False
        return actions

    def _decide(self, actions: list[AnyAction]) -> None:
        while self._ready:
            before = len(self.ended)
            decided = self._policy.decide(self._view, self._now)
            for action in decided:
                if type(action) is Start:
                    self._start(action)
                else:
                    self._apply(action)
            actions += decided
            if len(self.ended) == before:  # else a job that the policy ended may have made others ready
                break

    # ---- events ----

    def _released(self, e: Released, _: list[AnyAction]) -> bool:
        task = self.tasks.get(e.task)
        if task is None:
            raise UserError(f"there is no task {e.task!r}; known: {', '.join(self.tasks)}")
        if self._let_in(task, e.index, e.release_ns, e.deadline_ns):
            self._undecided = True
        return self._undecided and not e.more

    def _started(self, e: Started, _: list[AnyAction]) -> bool:
        p = self._processors[e.processor]
        job = p.job
        if job is None or job.index != e.index or job.task.name != e.task:
            return False  # lost with its processor meanwhile
        p.started_ns = self._now
        if job.start_ns is None:
            job.start_ns = self._now
        return False

    def _finished(self, e: Finished, _: list[AnyAction]) -> bool:
        job = self._running(e)
        if job is None:
            return False
        assert job.move is not None
        self._vacate(self._processors[e.processor], job)
        if e.outcome == "done":
            self._complete(job, job.move, e.duration_ns)
        else:
            self._end(job, DROPPED, job.cause or "cancelled")
        return True

    def _failed(self, e: Failed, _: list[AnyAction]) -> bool:
        job = self._running(e)
        if job is not None:
            self._vacate(self._processors[e.processor], job)
            self._end(job, FAILED, e.cause)
        if e.lost:
            self._lose(e.processor, e.cause)
        return job is not None or e.lost

    def _cancelled(self, e: Cancelled, actions: list[AnyAction]) -> bool:
        job = self.tasks[e.task].live.get(e.index)
        if job is None:
            return False
        if job.state == RUNNING:
            job.cancelling, job.cause = True, e.cause
            actions.append(Cancel(e.task, e.index, e.cause))
            return False
        self._end(job, DROPPED, e.cause)
        return True

    def _input_replaced(self, e: InputReplaced, _: list[AnyAction]) -> bool:
        return e.index in self.tasks[e.task].live

    def _processor_lost(self, e: ProcessorLost, _: list[AnyAction]) -> bool:
        self._lose(e.processor, e.cause)
        p = self._processors[e.processor]
        if p.job is not None:
            job = p.job
            self._vacate(p, job)
            if job.cancelling:
                self._end(job, DROPPED, job.cause or "cancelled")
            elif job.remaining_ns < UNREACHABLE_NS:
                job.task.unstarted += job.position == 0
                self._make_ready(job)  # its inputs are still there: another processor may run the subgraph
            else:
                self._end(job, FAILED, f"processor lost: {e.cause}")
        return True

    def _lose(self, processor: str, cause: str) -> None:
        """The processor starts nothing more; what waits and cannot end without it fails now, rather than wait for what may
        never come.
        """
        self._processors[processor].available = False
        self._lost[processor] = cause
        self._refresh_tasks()
        for job in [j for j in self._ready if j.remaining_ns >= UNREACHABLE_NS]:
            if job.state == READY:
                self._end(job, FAILED, self._no_processor())

    def _processor_back(self, e: ProcessorBack, _: list[AnyAction]) -> bool:
        self._processors[e.processor].available = True
        self._lost.pop(e.processor, None)
        self._refresh_tasks()
        return True

    def _estimate_changed(self, e: EstimateChanged, _: list[AnyAction]) -> bool:
        processor = self._processors[e.processor]
        for task in self.tasks.values():
            for moves in task.moves:
                for move in moves:
                    if move.processor is processor:
                        move.scale(e.factor)
        self._refresh_tasks()
        return True

    def _version_ready(self, e: VersionReady, _: list[AnyAction]) -> bool:
        self.tasks[e.task].version = e.version
        return True

    def _time(self, e: Time, _: list[AnyAction]) -> bool:
        return True

    # ---- actions of the policy ----

    def _apply(self, action: AnyAction) -> None:
        kind = type(action)
        if kind is Drop or kind is Reject:
            job = self._job_of(action)  # type: ignore[arg-type]
            if job is None or job.state == RUNNING:
                raise InternalError(f"policy {self._policy.name!r} ends a job that is not waiting: {action}")
            self._end(job, DROPPED if kind is Drop else REJECTED, action.cause)  # type: ignore[union-attr]
        elif kind is Cancel:
            job = self._job_of(action)  # type: ignore[arg-type]
            if job is None or job.state != RUNNING:
                raise InternalError(f"policy {self._policy.name!r} cancels a job that does not run: {action}")
            job.cancelling, job.cause = True, action.cause  # type: ignore[union-attr]
        elif kind is Hold:
            p = self._processors[action.processor]  # type: ignore[union-attr]
            # The newest holds, so that a hold can be lifted.
            p.held_until_ns = action.until_ns  # type: ignore[union-attr]

    def _job_of(self, action: Drop | Reject | Cancel) -> Job | None:
        task = self.tasks.get(action.task)
        return None if task is None else task.live.get(action.index)

    def _start(self, action: Start) -> None:
        known = self.tasks.get(action.task)
        job = None if known is None else known.live.get(action.index)
        if job is None or job.state != READY:
            raise InternalError(f"policy {self._policy.name!r} starts what is not ready: {action}")
        task, view = job.task, self._view
        move = task.move_of.get((action.subgraph, action.processor))
        if move is None or move.start != job.position:
            raise InternalError(f"policy {self._policy.name!r} starts what the plan does not allow: {action}")
        p = move.processor
        if not p.available or p.mask & view.busy_mask or p.held_until_ns > self._now:
            raise InternalError(f"policy {self._policy.name!r} starts on a processor that is not free: {action}")
        job.state, job.processor, job.move = RUNNING, p, move
        if move.start == 0:
            task.unstarted -= 1
        p.job, p.move, p.started_ns = job, move, None
        view.busy_mask |= p.mask
        del self._ready[job]

    def _running(self, e: Finished | Failed) -> Job | None:
        """Whose run the event is of; None if that run is not there any more (the processor was lost meanwhile)."""
        p = self._processors[e.processor]
        job, move = p.job, p.move
        if job is None or job.index != e.index or job.task.name != e.task or (move is not None and move.subgraph != e.subgraph):
            return None
        return job

    def _refresh_tasks(self) -> None:
        self._view.refreshed += 1
        for task in self.tasks.values():
            task.refresh_best()
