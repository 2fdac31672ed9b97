"""Whatever happens, in whatever order: no job is lost, no resource held twice, nothing starts before what it waits for."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgeengine.events import EstimateChanged, InputReplaced, VersionReady
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.fifo import Fifo
from tests.builders import MS, PROCESSORS, plan, workloads
from tests.scheduling.driver import Driver

POLICIES: dict[str, Any] = {
    "edf": Edf, "fifo": Fifo, "edf, nothing dropped early": lambda: Edf(early_drop=False),
}  # fmt: skip


class AnyHistory(RuleBasedStateMachine):
    """Events in any order that a driver could produce. The Driver checks every action and every end as it comes."""

    policies: ClassVar[dict[str, Any]] = POLICIES

    @initialize(workload=workloads(most_tasks=3), data=st.data(), seed=st.integers(0, 3))
    def begin(self, workload: Any, data: Any, seed: int) -> None:
        self.policy, self.seed = self.policies[data.draw(st.sampled_from(sorted(self.policies)))], seed
        self.driver = Driver(workload, plan(workload, PROCESSORS), self.policy(), seed)
        self.own = [t.name for t in workload.tasks if t.after is None or t.has_pattern]

    @rule(data=st.data(), later=st.sampled_from([0, MS, 4 * MS]), count=st.integers(1, 3))
    def release(self, data: Any, later: int, count: int) -> None:
        self.driver.now += later
        task = data.draw(st.sampled_from(self.own))
        for _ in range(count):
            self.driver.release(task)

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), later=st.sampled_from([0, 1, MS, 7 * MS]), cut_short=st.booleans())
    def finish(self, data: Any, later: int, cut_short: bool) -> None:
        """A cancelled subgraph may be cut short or run to its end, as its provider can."""
        name = data.draw(st.sampled_from(sorted(self.driver.running)))
        start = self.driver.running[name]
        cancelled = self.driver.scheduler.job(start.task, start.index).cancelling
        self.driver.finish(name, self.driver.now + later, cut_short and cancelled)

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data())
    def fail(self, data: Any) -> None:
        self.driver.fail(data.draw(st.sampled_from(sorted(self.driver.running))))

    @precondition(lambda self: self.driver.scheduler.alive())
    @rule(data=st.data())
    def cancel(self, data: Any) -> None:
        job = data.draw(st.sampled_from(self.driver.scheduler.alive()))
        self.driver.cancel(job.task.name, job.index)

    @rule(data=st.data())
    def lose_processor(self, data: Any) -> None:
        self.driver.lose(data.draw(st.sampled_from([p.name for p in PROCESSORS])))

    @precondition(lambda self: self.driver.lost)
    @rule(data=st.data())
    def processor_back(self, data: Any) -> None:
        self.driver.back(data.draw(st.sampled_from(sorted(self.driver.lost))))

    @rule(ns=st.sampled_from([1, MS, 5 * MS, 40 * MS]))
    def time(self, ns: int) -> None:
        self.driver.pass_time(ns)

    @rule(name=st.sampled_from([p.name for p in PROCESSORS]), factor=st.sampled_from([0.3, 1.0, 2.5, 9.0]))
    def estimate_changed(self, name: str, factor: float) -> None:
        self.driver.step(EstimateChanged(self.driver.now, name, factor))

    @rule(data=st.data(), index=st.integers(0, 3))
    def what_concerns_no_one(self, data: Any, index: int) -> None:
        task = data.draw(st.sampled_from(self.driver.workload.tasks)).name
        self.driver.step(InputReplaced(self.driver.now, task, index))
        self.driver.step(VersionReady(self.driver.now, task, "v1"))

    @invariant()
    def works_conservingly(self) -> None:
        """No ready job waits for a processor that is free, unless some job would be late there and waits for another."""
        view, now = self.driver.scheduler.view, self.driver.now
        free = {p.name for p in view.free(now)}
        for job in view.ready:
            left = [m.p50_ns + job.task.best_ns[m.stop] for m in view.moves(job) if m.processor.name in free]
            if job.deadline_ns is not None and left and now + min(left) > job.deadline_ns:
                return
        for job in view.ready:
            assert not free & {m.processor.name for m in view.moves(job)}, f"{job} waits beside a free processor"

    @invariant()
    def queues_are_counted_right(self) -> None:
        waiting = [j for j in self.driver.scheduler.alive() if j.position == 0 and j.processor is None]
        for task in self.driver.scheduler.tasks.values():
            assert task.unstarted == sum(j.task is task for j in waiting), f"{task.name}: {waiting}"

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.drain()
        self.driver.check_drained()
        self.driver.check_replay(self.policy(), self.seed)


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking a history takes minutes; the assertions say enough
    suppress_health_check=list(HealthCheck),
)
