"""Drives a scheduler by hand and watches it: what it may never do is checked here, from events and actions alone."""

from __future__ import annotations

from typing import Any

from edgeengine.events import (
    AnyAction,
    AnyEvent,
    Cancel,
    Cancelled,
    Drop,
    Failed,
    Finished,
    Hold,
    LogLine,
    ProcessorBack,
    ProcessorLost,
    Reject,
    Released,
    Start,
    Started,
    Time,
    Wake,
)  # fmt: skip
from edgeengine.scheduling import Job, Policy, Scheduler
from edgeengine.spec import Plan
from edgeengine.workload import Workload

Key = tuple[str, int]


class Driver:
    """Time stands still unless told. Started follows each Start at once; a running subgraph ends when told."""

    def __init__(self, workload: Workload, plan: Plan, policy: Policy, seed: int = 0):
        self.workload, self.plan = workload, plan
        self.log: list[LogLine] = []
        self.scheduler = Scheduler(workload, plan, policy, seed=seed, record=self.log.append)
        self.now = 0
        self.running: dict[str, Start] = {}  # by processor
        self.lost: set[str] = set()
        self.released: list[Key] = []
        self.ended: dict[Key, Job] = {}
        self.order: list[Key] = []  # of the ends
        self.started: list[Start] = []
        self.wakes: set[int] = set()  # asked for and not come yet
        self._next = {t.name: 0 for t in workload.tasks}
        self._position: dict[Key, int] = {}
        self._resources = {p.name: set(p.resources) for p in plan.processors}
        self._after = {t.name: t.after for t in workload.tasks}
        self._serial = {t.name for t in workload.tasks if t.carry}

    # ---- what one does to it ----

    def release(self, task: str, at: int | None = None, deadline_ns: int | None = None, index: int | None = None) -> Key:
        if index is None:
            index = self._next[task]
        self._next[task] = max(self._next[task], index + 1)
        self.released.append((task, index))
        self.now = at if at is not None else self.now
        self.step(Released(self.now, task, index, self.now, deadline_ns))
        return task, index

    def finish(self, processor: str, at: int | None = None, cut_short: bool = False) -> None:
        self.now = at if at is not None else self.now
        start = self.running.pop(processor)
        step = next(s for s in self.plan.task(start.task).steps if s.subgraph == start.subgraph)
        self._position[start.task, start.index] = step.stop
        outcome = "cancelled" if cut_short else "done"
        self.step(Finished(self.now, start.task, start.index, start.subgraph, processor, outcome, 1))

    def fail(self, processor: str) -> None:
        start = self.running.pop(processor)
        self.step(Failed(self.now, start.task, start.index, start.subgraph, processor, "it broke"))

    def cancel(self, task: str, index: int) -> None:
        self.step(Cancelled(self.now, task, index))

    def lose(self, processor: str) -> None:
        self.running.pop(processor, None)
        self.lost.add(processor)
        self.step(ProcessorLost(self.now, processor, "unplugged"))

    def back(self, processor: str) -> None:
        self.lost.discard(processor)
        self.step(ProcessorBack(self.now, processor))

    def pass_time(self, ns: int) -> None:
        self.now += ns
        self.step(Time(self.now))

    def drain(self) -> None:
        """Every processor comes back, every parent is released, every subgraph ends; then nothing may be left."""
        for name in sorted(self.lost):
            self.back(name)
        for task in self.workload.tasks:  # a child that came first waits for its parent's job of the same index
            if task.after is not None and task.has_pattern:
                while self._next[task.after] < self._next[task.name]:
                    self.release(task.after)
        while self.running or (self.wakes and self.scheduler.alive()):
            if self.running:
                self.finish(min(self.running), self.now + 1)
            else:
                at = min(self.wakes)
                self.wakes.discard(at)
                self.pass_time(max(at - self.now, 0))

    # ---- what must hold ----

    def step(self, event: AnyEvent) -> list[AnyAction]:
        actions = self.scheduler.step(event)
        for job in self.scheduler.ended:
            self._check_end(job)
        for action in actions:
            if isinstance(action, Start):
                self._check_start(action)
            if isinstance(action, Wake):
                self.wakes.add(action.at_ns)
        for action in actions:
            if isinstance(action, Start):
                self.scheduler.step(Started(self.now, action.task, action.index, action.subgraph, action.processor))
        return actions

    def _begun(self, key: Key) -> bool:
        return self._position.get(key, 0) > 0 or any((r.task, r.index) == key for r in self.running.values())

    def _check_start(self, start: Start) -> None:
        key = (start.task, start.index)
        assert key not in self.ended, f"{start}: that job has ended"
        assert all((s.task, s.index) != key for s in self.running.values()), f"{start}: it runs already"
        assert start.processor not in self.lost, f"{start}: the processor is lost"
        for other in self.running:
            assert self._resources[other].isdisjoint(self._resources[start.processor]), f"{start}: {other} holds a resource of it"
        step = next(s for s in self.plan.task(start.task).steps if (s.subgraph, s.processor) == (start.subgraph, start.processor))
        assert step.start == self._position.get(key, 0), f"{start}: the subgraph before it has not ended"
        parent = self._after[start.task]
        if parent is not None:
            ended = self.ended.get((parent, start.index))
            assert ended is not None and ended.outcome in ("met", "late"), f"{start}: its parent has not finished"
        if start.task in self._serial:
            # Children are released as their parents finish, in whatever order: of these only those that began must have ended.
            waits = [k for k in self._known(start.task) if k != key and k not in self.ended]
            earlier = [k for k in waits if self._begun(k) or (k[1] < start.index and self._after[start.task] is None)]
            assert not earlier, f"{start}: {earlier[0]} has not ended and both carry state"
        self.running[start.processor] = start
        self.started.append(start)

    def _known(self, task: str) -> list[Key]:
        return [(j.task.name, j.index) for j in self.scheduler.alive() if j.task.name == task]

    def _check_end(self, job: Job) -> None:
        key = (job.task.name, job.index)
        assert key not in self.ended, f"{key} ended twice"
        assert job.outcome in ("met", "late", "dropped", "failed", "rejected"), f"{key} ended as {job.outcome!r}"
        assert (job.cause == "") == (job.outcome == "met"), f"{key}: {job.outcome} because of {job.cause!r}"
        assert job.finish_ns == self.now
        if job.outcome == "met" and job.deadline_ns is not None:
            assert self.now <= job.deadline_ns
        if job.outcome == "late":
            assert job.deadline_ns is not None and self.now > job.deadline_ns
        self.ended[key] = job
        self.order.append(key)

    def check_drained(self) -> None:
        """Every released job ended once; every child that must follow its parent did."""
        assert not self.scheduler.alive(), f"never ended: {self.scheduler.alive()}"
        certain = {t.name for t in self.workload.tasks if t.probability >= 1}
        missing = [k for k in self.released if k not in self.ended and k[0] in certain]
        assert not missing, f"released and never ended: {missing}"
        for task in self.workload.tasks:
            if task.after is None:
                continue
            of_parent = {i: j for (name, i), j in self.ended.items() if name == task.after}
            if not task.has_pattern:
                own = {i for name, i in self.ended if name == task.name}
                assert own <= of_parent.keys()
                assert task.probability < 1 or own == of_parent.keys(), f"{task.name} did not follow each {task.after}"
            for (name, i), job in self.ended.items():
                if name == task.name and i in of_parent and not of_parent[i].finished:
                    assert not job.finished, f"{task.name}#{i} ran though its parent was {of_parent[i].outcome}"

    def check_replay(self, policy: Policy, seed: int = 0) -> None:
        assert replay(self.workload, self.plan, policy, self.log, seed) == [line.actions for line in self.log]


def replay(workload: Workload, plan: Plan, policy: Policy, log: list[LogLine], seed: int = 0) -> list[list[AnyAction]]:
    """The actions a fresh scheduler answers to the log's events."""
    fresh = Scheduler(workload, plan, policy, seed=seed)
    return [fresh.step(line.event) for line in log]


class Scripted:
    """A policy that does what it is told, in turn; then nothing."""

    name = "scripted"

    def __init__(self, *answers: list[AnyAction]):
        self._answers = list(answers)

    def decide(self, view: Any, now: int) -> list[AnyAction]:
        return self._answers.pop(0) if self._answers else []


__all__ = ["Cancel", "Driver", "Drop", "Hold", "Key", "Reject", "Scripted", "Start", "replay"]
