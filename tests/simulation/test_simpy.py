"""SimPy as an oracle: its event loop drives the same scheduler through the same workloads, to the same log."""

from __future__ import annotations

from collections.abc import Callable

import simpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeengine.clock import ORDER_FINISH, ORDER_RELEASE, ORDER_START, ORDER_WAKE
from edgeengine.events import AnyEvent, Finished, Hold, LogLine, Released, Start, Started, Time, Wake, dump_log
from edgeengine.scheduling import Scheduler, make_policy
from edgeengine.scheduling.follow_up import first_training_releases, follow_ups
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Plan
from edgeengine.workload import Workload, release_times
from tests.builders import MS, PROCESSORS, plan, workloads

MANY = 1000  # more than there are tasks or processors


class Oracle:
    """Median times and no overheads; each processor's run is a SimPy event, each task's releases a SimPy process."""

    def __init__(self, tasks: Workload, made: Plan, policy: str, stop_ns: int, seed: int):
        self.env = simpy.Environment()
        self.log: list[LogLine] = []
        self.scheduler = Scheduler(tasks, made, make_policy(policy), seed=seed, record=self.log.append)
        self._stop_ns = stop_ns
        self._rank = {p.name: i for i, p in enumerate(made.processors)}
        self._time = {(t.task, s.subgraph, s.processor): s.latency.p50_ns for t in made.tasks for s in t.steps}
        releases = [
            (at, rank, index, task.name)
            for rank, task in enumerate(tasks.tasks)
            for index, at in enumerate(self._before_stop(release_times(task, seed)))
        ]
        self._left = len(releases)
        for at, rank, index, name in releases:
            last = max(r for r in releases if r[0] == at)
            event = Released(at, name, index, at, None, (at, rank, index, name) != last)
            self.at(at, ORDER_RELEASE, rank * MANY + index % MANY, lambda e=event: self._release(e))

    def _before_stop(self, times: object) -> list[int]:
        found = []
        for at in times:  # type: ignore[attr-defined]
            if at >= self._stop_ns:
                break
            found.append(at)
        return found

    def at(self, at_ns: int, order: int, index: int, act: Callable[[], None]) -> None:
        event = self.env.event()
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: act())
        self.env.schedule(event, priority=order * MANY * MANY + index, delay=at_ns - self.env.now)

    def run(self) -> bytes:
        for event in first_training_releases(self.scheduler.tasks.values()):
            self.step(event, None)
        if not self._left:
            self.scheduler.ended = []
            self._followed(None)
        while self._left or not self.scheduler.idle:
            self.env.step()
        return dump_log(self.log)

    def _release(self, event: Released) -> None:
        self.step(event, None)
        self._left -= 1
        if not self._left:
            self.scheduler.ended = []
            self._followed(None)

    def step(self, event: AnyEvent, worker: str | None) -> None:
        own = self._act(event, worker)
        own = self._followed(worker) or own
        if own is not None:
            self._begin(own)

    def _followed(self, worker: str | None) -> Start | None:
        own, pending = None, self._follow_ups()
        while pending:
            own = self._act(pending.pop(0), worker) or own
            pending += self._follow_ups()
        return own

    def _follow_ups(self) -> list[AnyEvent]:
        return follow_ups(self.scheduler, self.env.now, self._stop_ns, not self._left)

    def _act(self, event: AnyEvent, worker: str | None) -> Start | None:
        own = None
        for action in self.scheduler.step(event):
            match action:
                case Start() if action.processor == worker:
                    own = action
                case Start():
                    self.at(self.env.now, ORDER_START, self._rank[action.processor], lambda a=action: self._begin(a))
                case Wake() | Hold():
                    at_ns = max(action.at_ns if isinstance(action, Wake) else action.until_ns, self.env.now)
                    self.at(at_ns, ORDER_WAKE, 0, lambda t=at_ns: self.step(Time(t), None))
        return own

    def _begin(self, start: Start) -> None:
        now = self.env.now
        self.scheduler.step(Started(now, start.task, start.index, start.subgraph, start.processor))
        took = max(self._time[start.task, start.subgraph, start.processor], 1)
        done = Finished(now + took, start.task, start.index, start.subgraph, start.processor, "done", took)
        self.at(now + took, ORDER_FINISH, self._rank[start.processor], lambda: self.step(done, done.processor))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tasks=workloads(released=True), policy=st.sampled_from(["edf", "fifo"]), seed=st.integers(0, 3))
def test_simpy_drives_the_scheduler_to_the_same_log(tasks: Workload, policy: str, seed: int) -> None:
    made, stop_ns = plan(tasks, PROCESSORS), 100 * MS
    ours = simulate(tasks, made, make_policy(policy), Median(), stop_ns=stop_ns, seed=seed, keep_log=True)
    assert dump_log(ours.log or []) == Oracle(tasks, made, policy, stop_ns, seed).run()
