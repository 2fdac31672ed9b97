"""The scheduler core: `step(event) -> actions`. No I/O, no threads, no clock: `event.at_ns` is all it knows of time.

Invariants: a job ends exactly once, with a cause unless it was met; no two running subgraphs share a resource; a subgraph starts
only after its job's previous one, the parent's job (`after`) and, with carried state, the previous job have ended.
"""

from __future__ import annotations

import random
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
    BLOCKED,
    DROPPED,
    ENDED,
    FAILED,
    LATE,
    MET,
    READY,
    REJECTED,
    RUNNING,
    UNREACHABLE_NS,
    Job,
    Move,
    ProcessorState,
    Task,
)  # fmt: skip
from edgeengine.scheduling.view import Policy, View
from edgeengine.spec import Plan
from edgeengine.workload import Workload


class Scheduler:
    """Feed it every event once, in time order; do what it answers.

    After each `step`, `ended` holds the jobs that ended in it. `seed` decides which children with a `probability` are drawn.
    `record` is given every step: replayed into a fresh scheduler they yield the same actions.
    """

    def __init__(
        self, workload: Workload, plan: Plan, policy: Policy, *,
        seed: int = 0, record: Callable[[LogLine], object] | None = None,
    ):  # fmt: skip
        bits: dict[str, int] = {}
        processors = []
        for i, p in enumerate(plan.processors):
            mask = 0
            for resource in (f"processor {p.name}", *p.resources):  # it never runs two at a time, whatever it holds
                mask |= 1 << bits.setdefault(resource, len(bits))
            processors.append(ProcessorState(p, i, mask))
        self._processors = {p.name: p for p in processors}
        tasks = [Task(spec, plan.task(spec.name), i, self._processors) for i, spec in enumerate(workload.tasks)]
        self.tasks = {t.name: t for t in tasks}
        for task in tasks:
            if task.spec.after is not None:
                task.parent = self.tasks[task.spec.after]
                task.parent.children.append(task)
        self._jobs: dict[tuple[str, int], Job] = {}
        self._ready: dict[Job, None] = {}
        self._view = View(tasks, processors, self._ready, self._jobs, plan.guidance)
        self._policy, self._seed = policy, seed
        prepare = getattr(policy, "prepare", None)
        if prepare is not None:
            prepare(self._view)
        self._now = 0
        self._lost: dict[str, str] = {}  # processor -> why, until it is back
        self._undecided = False  # releases came for which the policy was not asked yet
        self.ended: list[Job] = []
        self._record = record
        self._handlers = {
            Released: self._released, Started: self._started, Finished: self._finished, Failed: self._failed,
            Cancelled: self._cancelled, InputReplaced: self._input_replaced, ProcessorLost: self._processor_lost,
            ProcessorBack: self._processor_back, EstimateChanged: self._estimate_changed,
            VersionReady: self._version_ready, Time: self._time,
        }  # fmt: skip

    @property
    def idle(self) -> bool:
        """No job is alive."""
        return not self._jobs

    @property
    def view(self) -> View:
        """What the policy sees."""
        return self._view

    @property
    def released(self) -> dict[str, int]:
        """Jobs let in so far, by task: what the outcomes must add up to when all have ended."""
        return {name: task.released for name, task in self.tasks.items()}

    @property
    def stuck(self) -> bool:
        """Jobs live, but none runs or may start: they wait for parents that will not come."""
        return bool(self._jobs) and not self._ready and not self._view.busy_mask

    def job(self, task: str, index: int) -> Job:
        """A job that has not ended. Raises KeyError otherwise."""
        return self._jobs[task, index]

    def alive(self) -> list[Job]:
        return list(self._jobs.values())

    def step(self, event: AnyEvent) -> list[AnyAction]:
        """Take one event; returns what to do now, in order."""
        self._now = event.at_ns
        self.ended = []
        actions: list[AnyAction] = []
        # Handlers say whether anything changed that a policy could act on.
        again = self._handlers[type(event)](event, actions)  # type: ignore[operator]
        if again:
            self._undecided = False
        while again and self._ready:
            ended = len(self.ended)
            decided = self._policy.decide(self._view, self._now)
            for action in decided:
                self._apply(action)
            actions += decided
            again = len(self.ended) > ended  # a job that the policy ends may have made others ready
        if self._record is not None:
            self._record(LogLine(event, actions))
        return actions

    # ---- events ----

    def _released(self, e: Released, _: list[AnyAction]) -> bool:
        changed = self._release(e) or self._undecided
        self._undecided = changed and e.more
        return changed and not e.more

    def _release(self, e: Released) -> bool:
        task = self.tasks.get(e.task)
        if task is None:
            raise UserError(f"there is no task {e.task!r}; known: {', '.join(self.tasks)}")
        if task.period_ns is not None:
            task.next_release_ns = e.release_ns + task.period_ns
        task.last_index = e.index
        ended_well = task.parent_ended.pop(e.index, None)
        if task.parent is not None and not self._drawn(task, e.index):
            return False
        deadline_ns = e.deadline_ns
        if deadline_ns is None and task.deadline_ns is not None:
            deadline_ns = e.release_ns + task.deadline_ns
        job = self._admit(task, e.index, e.release_ns, deadline_ns, orphan=ended_well is False)
        if task.parent is not None and job.state != ENDED:
            if ended_well is None:
                task.waiting[e.index] = job
                self._block(job)
            elif not ended_well:
                self._end(job, DROPPED, "parent")
        return True

    def _started(self, e: Started, _: list[AnyAction]) -> bool:
        p = self._processors[e.processor]
        job = self._jobs.get((e.task, e.index))
        if job is None or p.job is not job:
            return False  # lost with its processor meanwhile
        p.started_ns = self._now
        if job.start_ns is None:
            job.start_ns = self._now
        return False

    def _finished(self, e: Finished, _: list[AnyAction]) -> bool:
        job = self._vacate(e.processor, e.task, e.index, e.subgraph)
        if job is None:
            return False
        if job.cancelling or e.outcome != "done":
            self._end(job, DROPPED, job.cause or "cancelled")
            return True
        assert job.move is not None
        job.position = job.move.stop
        spent = job.move.energy_mj
        job.energy_mj = None if spent is None or job.energy_mj is None else job.energy_mj + spent
        if job.position < job.task.segments:
            self._make_ready(job)
        elif job.deadline_ns is not None and self._now > job.deadline_ns:
            self._end(job, LATE, "finished after its deadline")
        else:
            self._end(job, MET, "")
        return True

    def _failed(self, e: Failed, _: list[AnyAction]) -> bool:
        job = self._vacate(e.processor, e.task, e.index, e.subgraph)
        if job is not None:
            self._end(job, FAILED, e.cause)
        if e.lost:
            self._lose(e.processor, e.cause)
        return job is not None or e.lost

    def _cancelled(self, e: Cancelled, actions: list[AnyAction]) -> bool:
        job = self._jobs.get((e.task, e.index))
        if job is None:
            return False
        if job.state == RUNNING:
            job.cancelling, job.cause = True, e.cause
            actions.append(Cancel(e.task, e.index, e.cause))
            return False
        self._end(job, DROPPED, e.cause)
        return True

    def _input_replaced(self, e: InputReplaced, _: list[AnyAction]) -> bool:
        return (e.task, e.index) in self._jobs

    def _processor_lost(self, e: ProcessorLost, _: list[AnyAction]) -> bool:
        self._lose(e.processor, e.cause)
        p = self._processors[e.processor]
        if p.job is not None:
            job = self._vacate(p.name, p.job.task.name, p.job.index, p.move.subgraph if p.move else "")
            assert job is not None
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

    def _no_processor(self) -> str:
        return "no processor left: " + "; ".join(f"{name} is lost ({cause})" for name, cause in self._lost.items())

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
        if kind is Start:
            self._start(action)  # type: ignore[arg-type]
        elif kind is Drop or kind is Reject:
            job = self._jobs.get((action.task, action.index))  # type: ignore[union-attr]
            if job is None or job.state == RUNNING:
                raise InternalError(f"policy {self._policy.name!r} ends a job that is not waiting: {action}")
            self._end(job, DROPPED if kind is Drop else REJECTED, action.cause)  # type: ignore[union-attr]
        elif kind is Cancel:
            job = self._jobs.get((action.task, action.index))  # type: ignore[union-attr]
            if job is None or job.state != RUNNING:
                raise InternalError(f"policy {self._policy.name!r} cancels a job that does not run: {action}")
            job.cancelling, job.cause = True, action.cause  # type: ignore[union-attr]
        elif kind is Hold:
            p = self._processors[action.processor]  # type: ignore[union-attr]
            # The newest holds, so that a hold can be lifted.
            p.held_until_ns = action.until_ns  # type: ignore[union-attr]

    def _start(self, action: Start) -> None:
        job = self._jobs.get((action.task, action.index))
        p = self._processors.get(action.processor)
        if job is None or p is None or job.state != READY:
            raise InternalError(f"policy {self._policy.name!r} starts what is not ready: {action}")
        if not p.available or p.mask & self._view.busy_mask or p.held_until_ns > self._now:
            raise InternalError(f"policy {self._policy.name!r} starts on a processor that is not free: {action}")
        move = self._move(job, action)
        job.state, job.processor, job.move = RUNNING, p, move
        if job.position == 0:
            job.task.unstarted -= 1
        p.job, p.move, p.started_ns = job, move, None
        self._view.busy_mask |= p.mask
        del self._ready[job]

    def _move(self, job: Job, action: Start) -> Move:
        for move in job.task.moves[job.position]:
            if move.subgraph == action.subgraph and move.processor.name == action.processor:
                return move
        raise InternalError(f"policy {self._policy.name!r} starts what the plan does not allow: {action}")

    # ---- the life of a job ----

    def _admit(self, task: Task, index: int, release_ns: int, deadline_ns: int | None, orphan: bool) -> Job:
        """Make the job and let it in, unless the task's queue says otherwise. An orphan (its parent did not finish) is
        about to be dropped: it neither takes a place in the queue nor another's.
        """
        if (task.name, index) in self._jobs:
            raise InternalError(f"job {task.name}#{index} was released twice")
        job = Job(task, index, release_ns, deadline_ns)
        task.released += 1
        self._view.changes += 1
        if task.latest_only and not orphan:
            for older in [j for j in self._jobs.values() if j.task is task and j.position == 0 and j.state != RUNNING]:
                self._end(older, DROPPED, "stale: newer input came")
        self._jobs[task.name, index] = job
        task.unstarted += 1
        if task.queue_limit is not None and task.unstarted > task.queue_limit and not orphan:
            self._end(job, REJECTED, f"queue full ({task.queue_limit})")
            return job
        if task.refused and not orphan:
            self._end(job, REJECTED, "refused by admission")
            return job
        if task.too_soon(release_ns):
            self._end(job, REJECTED, "sooner than the rate it was admitted for")
            return job
        if task.serial:
            if task.tail is not None:
                job.previous, task.tail.follower = task.tail, job
                job.blockers += 1
            task.tail = job
        if job.blockers == 0:
            self._make_ready(job)
        return job

    def _make_ready(self, job: Job) -> None:
        """The job may start its next subgraph; it fails where the processors that are lost leave no way to its end."""
        job.state = READY
        self._ready[job] = None
        if self._lost and job.remaining_ns >= UNREACHABLE_NS:
            self._end(job, FAILED, self._no_processor())

    def _block(self, job: Job) -> None:
        job.blockers += 1
        if job.state == READY:
            job.state = BLOCKED
            del self._ready[job]

    def _unblock(self, job: Job) -> None:
        job.blockers -= 1
        if job.blockers == 0:
            self._make_ready(job)

    def _vacate(self, processor: str, task: str, index: int, subgraph: str) -> Job | None:
        """Take the job off its processor; None if that run is not there any more (the processor was lost meanwhile)."""
        p = self._processors[processor]
        job = p.job
        if job is None or job.task.name != task or job.index != index or (p.move is not None and p.move.subgraph != subgraph):
            return None
        self._view.busy_mask &= ~p.mask
        p.job = p.move = p.started_ns = None
        job.processor, job.last_processor = None, p
        return job

    def _end(self, job: Job, outcome: str, cause: str) -> None:
        task = job.task
        if job.state == READY:
            del self._ready[job]
        if job.position == 0 and job.state != RUNNING:
            task.unstarted -= 1
        job.state, job.outcome, job.cause, job.finish_ns = ENDED, outcome, cause, self._now
        del self._jobs[task.name, job.index]
        self._view.changes += 1
        task.recent.append(outcome == MET)
        task.waiting.pop(job.index, None)
        self.ended.append(job)
        self._unchain(job)
        for child in task.children:
            self._parent_ended(child, job)

    def _unchain(self, job: Job) -> None:
        """Take an ended job out of its serial chain; its follower waits for whom it waited for."""
        previous, follower = job.previous, job.follower
        if job.task.tail is job:
            job.task.tail = previous
        if previous is not None:
            previous.follower = follower
        if follower is not None:
            follower.previous = previous
            if previous is None:
                self._unblock(follower)
        job.previous = job.follower = None

    def _parent_ended(self, child: Task, parent: Job) -> None:
        if child.own_pattern:
            job = child.waiting.pop(parent.index, None)
            if job is None:
                if parent.index > child.last_index:  # else ours was released and has ended before its parent
                    child.parent_ended[parent.index] = parent.finished
            elif parent.finished:
                self._unblock(job)
            else:
                self._end(job, DROPPED, "parent")
        elif self._drawn(child, parent.index):
            deadline_ns = None if child.deadline_ns is None else parent.release_ns + child.deadline_ns
            job = self._admit(child, parent.index, self._now, deadline_ns, orphan=not parent.finished)
            if not parent.finished and job.state != ENDED:
                self._end(job, DROPPED, "parent")

    def _drawn(self, child: Task, index: int) -> bool:
        if child.probability >= 1:
            return True
        return random.Random(f"child:{self._seed}:{child.name}:{index}").random() < child.probability

    def _refresh_tasks(self) -> None:
        self._view.changes += 1
        for task in self.tasks.values():
            task.refresh_best()
