"""What the rolling plan has to place: jobs that have begun, jobs that wait, and those known to come.

A periodic task's releases are known; a child's follow its parent's jobs, and are reckoned with where they are as likely as not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgeengine.scheduling.guide import Guide
from edgeengine.scheduling.job import RUNNING, Job, Task
from edgeengine.scheduling.reservations import FAR_NS
from edgeengine.scheduling.view import View

Key = tuple[int, int]  # task index, job index


@dataclass(slots=True)
class Wanted:
    """A job to place: `job` is None for a release still to come. `after` is whom it waits for (parent, previous job)."""

    task: Task
    index: int
    job: Job | None
    release_ns: int
    due_ns: int
    position: int
    after: Key | None = None


class Demand:
    """`expires_ns`: the first release that was counted on; once it is past, what was collected is out of date."""

    def __init__(self, guide: Guide):
        self._guide = guide
        self.expires_ns = FAR_NS

    def collect(self, view: View, now: int, reach: float) -> tuple[list[Wanted], list[list[Wanted]]]:
        """(jobs that have begun, by task index the others in order); releases to come up to `reach` of the horizon."""
        begun: list[Wanted] = []
        waiting: list[list[Wanted]] = [[] for _ in view.tasks]
        ahead = round(self._guide.horizon_ns * reach)
        horizon = now + ahead
        for job in view.jobs:
            task = job.task
            if job.deadline_ns is None or task.train:
                continue
            position = job.move.stop if job.state == RUNNING and job.move is not None else job.position
            if position >= task.segments or job.cancelling:
                continue
            after = self._waits_for(view, job)
            due = job.deadline_ns - self._guide.margin_ns[task.index]
            wanted = Wanted(task, job.index, job, max(job.release_ns, now), due, position, after)
            if job.state == RUNNING or position > 0:
                begun.append(wanted)
            else:
                waiting[task.index].append(wanted)
                horizon = max(horizon, min(job.deadline_ns, now + 2 * ahead))
        self.expires_ns = FAR_NS
        for task in self._guide.rank:
            if task.next_release_ns is not None:
                waiting[task.index] += self._to_come(task, now, horizon)
            elif task.parent is not None and not task.own_pattern and task.probability >= 0.5:
                waiting[task.index] += self._children(view, task, begun, waiting[task.parent.index], now)
            waiting[task.index].sort(key=lambda w: w.index)
        return begun, waiting

    def _waits_for(self, view: View, job: Job) -> Key | None:
        if job.previous is not None:
            return (job.task.index, job.previous.index)
        parent = job.task.parent
        if parent is not None and view.job(parent, job.index) is not None:
            return (parent.index, job.index)
        return None

    def _to_come(self, task: Task, now: int, horizon: int) -> Iterable[Wanted]:
        assert task.next_release_ns is not None and task.period_ns is not None
        if task.deadline_ns is None:
            return
        release, index = task.next_release_ns, task.last_index + 1
        if release + task.period_ns // 8 < now:
            return  # it did not come: the task pauses, or the run is ending
        grace = self._guide.grace_ns  # a release of this very instant may not be known yet, a late timer's neither
        while release < horizon:
            if release + grace >= now:
                self.expires_ns = min(self.expires_ns, release + grace)
                due = release + task.deadline_ns - self._guide.margin_ns[task.index]
                after = (task.parent.index, index) if task.parent is not None else None
                yield Wanted(task, index, None, max(release, now), due, 0, after)
            release, index = release + task.period_ns, index + 1

    def _children(self, view: View, task: Task, begun: list[Wanted], parents: list[Wanted], now: int) -> Iterable[Wanted]:
        """Jobs that will be released when their parents finish."""
        assert task.parent is not None
        if task.deadline_ns is None:
            return
        final = [p.job for p in view.running() if p.job is not None and p.job.task is task.parent]
        seen = set()
        own = [(w.index, w.job, w.release_ns) for w in (*begun, *parents) if w.task is task.parent]
        for index, job, release in [*own, *((j.index, j, j.release_ns) for j in final)]:
            if index not in seen:
                seen.add(index)
                nominal = job.release_ns if job is not None else release
                due = nominal + task.deadline_ns - self._guide.margin_ns[task.index]
                yield Wanted(task, index, None, max(nominal, now), due, 0, (task.parent.index, index))
