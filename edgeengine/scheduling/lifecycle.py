"""The jobs of a run: who is let in, what each waits for, and how it ends: exactly once, with a cause unless it was met.

A subgraph is ready only after its job's previous one, the parent's job (`after`) and, with carried state, the previous job have
ended.
"""

from __future__ import annotations

import random

from edgeengine.errors import InternalError
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
from edgeengine.scheduling.transfers import Transfers
from edgeengine.scheduling.view import View
from edgeengine.spec import Plan
from edgeengine.workload import Workload


class Lifecycle:
    """The state that events change and policies see, and the rules by which jobs come, wait and go. The core drives it.

    `ended` holds the jobs that ended in the present step. `seed` decides which children with a `probability` are drawn.
    """

    def __init__(self, workload: Workload, plan: Plan, seed: int):
        processors = _processors(plan)
        self._processors = {p.name: p for p in processors}
        transfers = Transfers(plan)
        tasks = [Task(spec, plan.task(spec.name), i, self._processors, transfers) for i, spec in enumerate(workload.tasks)]
        self.tasks = {t.name: t for t in tasks}
        for task in tasks:
            if task.spec.after is not None:
                task.parent = self.tasks[task.spec.after]
                task.parent.children.append(task)
        self._jobs: dict[Job, None] = {}  # that have not ended, in order of their releases
        self._ready: dict[Job, None] = {}
        self._view = View(tasks, processors, self._ready, self._jobs, plan.guidance, plan.timetable)
        self._seed, self._now = seed, 0
        self._lost: dict[str, str] = {}  # processor -> why, until it is back
        self.ended: list[Job] = []

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
        return self.tasks[task].live[index]

    def alive(self) -> list[Job]:
        return list(self._jobs)

    # ---- coming ----

    def _let_in(self, task: Task, index: int, release_ns: int, deadline_ns: int | None) -> bool:
        """A release of the task's own pattern, or the caller's; False if its job is not drawn."""
        if task.period_ns is not None:
            task.next_release_ns = release_ns + task.period_ns
        task.last_index = index
        if deadline_ns is None and task.deadline_ns is not None:
            deadline_ns = release_ns + task.deadline_ns
        if task.parent is None:
            self._admit(task, index, release_ns, deadline_ns)
            return True
        ended_well = task.parent_ended.pop(index, None)
        if not self._drawn(task, index):
            return False
        job = self._admit(task, index, release_ns, deadline_ns, orphan=ended_well is False)
        if job.state != ENDED:
            if ended_well is None:
                task.waiting[index] = job
                self._block(job)
            elif not ended_well:
                self._end(job, DROPPED, "parent")
        return True

    def _admit(self, task: Task, index: int, release_ns: int, deadline_ns: int | None, orphan: bool = False) -> Job:
        """Make the job and let it in, unless the task's queue says otherwise. An orphan (its parent did not finish) is
        about to be dropped: it neither takes a place in the queue nor another's.
        """
        if index in task.live:
            raise InternalError(f"job {task.name}#{index} was released twice")
        last_ns = UNREACHABLE_NS if deadline_ns is None else deadline_ns
        urgency = (task.rank, last_ns, release_ns, task.index, index)
        job = Job(task, index, release_ns, deadline_ns, UNREACHABLE_NS if task.train else last_ns, urgency)
        task.released += 1
        if task.latest_only and not orphan:
            for older in [j for j in task.live.values() if j.position == 0 and j.state != RUNNING]:
                self._end(older, DROPPED, "stale: newer input came")
        self._jobs[job] = None
        task.live[index] = job
        task.unstarted += 1
        if task.open:
            self._make_ready(job)
            return job
        if task.queue_limit is not None and task.unstarted > task.queue_limit and not orphan:
            self._end(job, REJECTED, f"queue full ({task.queue_limit})")
            return job
        if task.refused and not orphan:
            self._end(job, REJECTED, "refused by admission")
            return job
        if task.guarantee is not None and task.too_soon(release_ns):
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

    # ---- waiting ----

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

    # ---- going on, and ending ----

    def _complete(self, job: Job, move: Move, duration_ns: int) -> None:
        """The job has run `move` to its end."""
        if job.cancelling:
            self._end(job, DROPPED, job.cause or "cancelled")
            return
        job.position = move.stop
        if job.energy_mj is not None:
            spent = move.spent_mj(duration_ns)
            job.energy_mj = None if spent is None else job.energy_mj + spent
        if move.stop < job.task.segments:
            self._make_ready(job)
        elif job.deadline_ns is not None and self._now > job.deadline_ns:
            self._end(job, LATE, "finished after its deadline")
        else:
            self._end(job, MET, "")

    def _vacate(self, p: ProcessorState, job: Job) -> None:
        """Take the job off the processor."""
        self._view.busy_mask &= ~p.mask
        job.processor, job.last_processor = None, p
        p.job = p.move = p.started_ns = None

    def _end(self, job: Job, outcome: str, cause: str) -> None:
        task = job.task
        if job.state != RUNNING:
            if job.state == READY:
                del self._ready[job]
            if job.position == 0:
                task.unstarted -= 1
        job.state, job.outcome, job.cause, job.finish_ns = ENDED, outcome, cause, self._now
        del self._jobs[job], task.live[job.index]
        if task.firm is not None:
            task.recent.append(outcome == MET)
        if task.waiting:
            task.waiting.pop(job.index, None)
        self.ended.append(job)
        if task.serial:
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

    def _no_processor(self) -> str:
        return "no processor left: " + "; ".join(f"{name} is lost ({cause})" for name, cause in self._lost.items())


def _processors(plan: Plan) -> list[ProcessorState]:
    """With a bit for each resource that one of them holds."""
    bits: dict[str, int] = {}
    processors = []
    for i, p in enumerate(plan.processors):
        mask = 0
        for resource in (f"processor {p.name}", *p.resources):  # it never runs two at a time, whatever it holds
            mask |= 1 << bits.setdefault(resource, len(bits))
        processors.append(ProcessorState(p, i, mask))
    return processors
