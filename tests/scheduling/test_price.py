"""The price policy: what it keeps and what it gives up, reservations and routes by hand, and the work it may spend."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from edgeengine.scheduling import Scheduler, make_policy
from edgeengine.scheduling.guide import Guide, usual_horizon_ns, usual_margin_ns
from edgeengine.scheduling.job import Job, Task
from edgeengine.scheduling.policies import PUBLISHED
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.price import Price
from edgeengine.scheduling.reservations import FAR_NS, Reservation, Timeline
from edgeengine.scheduling.rolling_plan import HARD_STOP, MOST_WORK
from edgeengine.simulation import Median, Sampled, simulate
from edgeengine.spec import Guidance, Latency, Plan
from edgeengine.testing import check_policy
from edgeengine.workload import Workload
from tests.builders import MS, PROCESSORS, plan, processor, workload
from tests.scheduling.test_invariants import AnyHistory
from tests.workload.test_xr import golden, strict


def guided(planned: Plan, **guidance: Any) -> Plan:
    return msgspec.structs.replace(planned, guidance=Guidance(**guidance))


def met(tasks: Workload, planned: Plan, policy: Any, ms: float = 700) -> dict[str, int]:
    jobs = simulate(tasks, planned, policy, Median(), stop_ns=round(ms * MS)).jobs
    return {t.name: sum(j.outcome == "met" for j in jobs if j.task.name == t.name) for t in tasks.tasks}


class PriceHistory(AnyHistory):
    """Any history under the price policy, which may leave a processor idle on purpose, and under the published ones."""

    policies: ClassVar[dict[str, Any]] = {"price": Price, "price too": Price, **PUBLISHED}

    def works_conservingly(self) -> None: ...


@pytest.mark.parametrize("factor", [1.0, 1.3])
@pytest.mark.parametrize("segments", [1, 4, 16])
def test_nothing_is_missed_while_it_fits(factor: float, segments: int) -> None:
    assert strict(golden(factor, segments), "price") == pytest.approx(93.83, abs=0.005)


@pytest.mark.parametrize(("factor", "optimum"), [(1.5, 75.89), (2.0, 65.11)])
def test_overload_reaches_the_proved_optimum(factor: float, optimum: float) -> None:
    """By dynamic programming over counts; plain EDF has 0.9 and 0.1."""
    assert strict(golden(factor, 4), "price") == pytest.approx(optimum, abs=0.005)


def test_overload_costs_the_lowest_rank_and_not_a_little_of_everyone() -> None:
    tasks = golden(2.0, 4)
    assert met(tasks, guided(plan(tasks), rank=("ES", "GE", "HT")), Price())["HT"] == 0
    other = met(tasks, guided(plan(tasks), rank=("ES", "HT", "GE")), Price())
    assert other["HT"] > 20 > other["GE"]


def test_holds_a_processor_for_an_imminent_critical_release() -> None:
    """The long job fits only if the processor stays idle from 15 on: it is started after the critical one."""
    tasks = workload(
        {"name": "critical", "period_ms": 20, "deadline_ms": 3, "criticality": "high", "latency_ms": {"p": 2}},
        {"name": "long", "arrivals": {"poisson": 30, "seed": 4}, "deadline_ms": 60, "latency_ms": {"p": 9}},
    )
    kept = met(tasks, plan(tasks), Price(), 2000)
    assert kept["critical"] == 100
    assert met(tasks, plan(tasks), Edf(), 2000)["critical"] < 100
    assert kept["long"] > 30


def test_work_without_deadline_fills_what_no_reservation_needs() -> None:
    tasks = workload(
        {"name": "camera", "period_ms": 10, "latency_ms": {"p": 4}, "deadline_ms": 5},
        {"name": "step", "kind": "train", "latency_ms": {"p": 4.8}, "segments": 2},
    )
    found = met(tasks, plan(tasks), Price(), 500)
    assert found["camera"] >= 49  # the first step begins before anything is known of the camera
    assert found["step"] >= 45


def test_criticality_goes_before_rank() -> None:
    tasks = workload(
        {"name": "cheap", "period_ms": 10, "criticality": "background", "latency_ms": {"p": 4}},
        {"name": "dear", "period_ms": 10, "criticality": "high", "latency_ms": {"p": 7}},
    )
    assert met(tasks, guided(plan(tasks), rank=("cheap", "dear")), Price(), 200) == {"cheap": 0, "dear": 20}


def test_child_gets_its_place_with_its_parent() -> None:
    """The parent is moved to the slow processor's place only where its child still fits behind it."""
    tasks = workload(
        {"name": "parent", "period_ms": 20, "latency_ms": {"cpu": 11, "npu": 5}},
        {"name": "child", "after": "parent", "latency_ms": {"npu": 8}},
        {"name": "other", "period_ms": 20, "latency_ms": {"npu": 6}},
    )
    assert met(tasks, plan(tasks), Price(), 200) == {"parent": 10, "child": 10, "other": 10}


def test_both_cores_and_each_core_are_planned_together() -> None:
    tasks = workload(
        {"name": "wide", "period_ms": 20, "latency_ms": {"both": 8}},
        {"name": "x", "period_ms": 20, "latency_ms": {"a": 11, "b": 11}},
        {"name": "y", "period_ms": 20, "latency_ms": {"a": 11, "b": 11}},
    )
    cores = (processor("a", "0"), processor("b", "1"), processor("both", "0", "1"))
    assert met(tasks, plan(tasks, cores), Price(), 200) == {"wide": 10, "x": 10, "y": 10}


def test_guidance_may_hand_over_to_another_policy() -> None:
    tasks = golden(1.5)
    chosen = guided(plan(tasks), policy="sjf", drop="hopeless")
    logs = [
        simulate(tasks, p, policy, Median(), stop_ns=300 * MS, keep_log=True).log
        for p, policy in ((chosen, Price()), (plan(tasks), make_policy("sjf")))
    ]
    assert logs[0] != logs[1]  # sjf by itself drops nothing
    assert any(a.cause == "cannot finish in time" for line in logs[0] or [] for a in line.actions if hasattr(a, "cause"))


def test_contract_is_kept() -> None:
    check_policy(Price)


def test_work_of_a_plan_is_bounded() -> None:
    """Forty tasks on five processors that share cores, far more than can be done: the horizon shrinks."""
    tasks = workload(
        *(
            {"name": f"t{i}", "period_ms": 5 + i, "segments": 4, "latency_ms": {"a": 3, "b": 3, "both": 2, "npu": 1}}
            for i in range(40)
        )
    )
    policy = Price()
    worst = 0

    class Watched:
        name = "watched"
        prepare = policy.prepare

        def decide(self, view: Any, now: int) -> Any:
            nonlocal worst
            actions = policy.decide(view, now)
            worst = max(worst, policy.work)
            return actions

    simulate(tasks, plan(tasks, PROCESSORS), Watched(), Median(), stop_ns=100 * MS)
    assert MOST_WORK < worst < HARD_STOP * MOST_WORK + 2000  # the last attempt may overshoot


def test_what_the_plan_had_no_time_for_starts_where_it_fits() -> None:
    """Ten tasks with three jobs each under way: the plan gives up before it comes to the last ones. Processors stood idle."""
    tasks = workload(
        *(
            {
                "name": f"t{i}",
                "period_ms": 90,
                "deadline_ms": 270,
                "latency_ms": {"cpu": 324, "gpu": 64.8, "dsp": 32.4, "npu": 16.2},
            }
            for i in range(10)
        )
    )
    done = simulate(tasks, plan(tasks), Price(), Median(), stop_ns=1000 * MS)
    assert {j.outcome for j in done.jobs} == {"met"}


def test_latency_tails_count_for_the_critical() -> None:
    tasks = workload(
        {"name": "h", "criticality": "high", "period_ms": 50},
        {"name": "n", "period_ms": 50},
        {"name": "b", "period_ms": 50, "criticality": "background"},
    )
    wide = Latency.of([MS] * 98 + [3 * MS] * 4)
    planned = plan(tasks)
    steps = tuple(
        msgspec.structs.replace(t, steps=tuple(msgspec.structs.replace(s, latency=wide) for s in t.steps)) for t in planned.tasks
    )
    view = Scheduler(tasks, msgspec.structs.replace(planned, tasks=steps), Edf()).view
    guide = Guide(view)
    assert [guide.shortest_ns[t.index] for t in view.tasks] == [3 * MS, round(1.8 * MS), MS]


def test_constants_scale_with_the_workload() -> None:
    assert usual_margin_ns([16 * MS, 22 * MS]) == pytest.approx(0.3 * MS, rel=0.02)
    assert usual_horizon_ns([22 * MS, 33 * MS, 66 * MS]) == 66 * MS
    assert usual_horizon_ns([1600 * MS, 2200 * MS]) == 100 * usual_horizon_ns([16 * MS, 22 * MS])
    assert usual_margin_ns([]) == usual_horizon_ns([]) == 0


# ---- timelines by hand ----


def reservation(release: int, length: int, deadline: int, grain: int | None = None) -> Reservation:
    tasks = workload({"name": "t", "latency_ms": {"p": 1}})
    view = Scheduler(tasks, plan(tasks), Edf()).view
    task: Task = view.tasks[0]
    return Reservation(task, 0, None, view.processors[0], 0, 1, length, grain or length, release, deadline)


def test_sequence_leaves_the_processor_idle_before_the_urgent() -> None:
    line = Timeline(divisible=False, joint=False)
    urgent, long = reservation(5, 2, 7), reservation(0, 6, 100)
    assert line.insert(urgent) and line.insert(long)
    assert [e.finish_ns for e in (urgent, long)] == [7, 13]
    assert not line.insert(reservation(0, 6, 12))
    assert [e.finish_ns for e in (urgent, long)] == [7, 13]


def test_divisible_work_gives_way_at_its_borders() -> None:
    line = Timeline(divisible=True, joint=False)
    long, urgent = reservation(0, 9, 100, grain=3), reservation(4, 2, 9)
    assert line.insert(long) and line.insert(urgent)
    assert [e.finish_ns for e in (urgent, long)] == [8, 11]  # the border after 4 is at 6
    line.remove(urgent)
    assert long.finish_ns == 9
    assert not line.insert(reservation(4, 2, 7, grain=2))


def test_begun_work_is_kept_behind_the_rest() -> None:
    line = Timeline(divisible=True, joint=False)
    begun, other = reservation(0, 5, 3), reservation(0, 4, 10)
    line.force(begun)
    assert line.insert(other)
    assert (other.finish_ns, begun.finish_ns, begun.due_ns) == (4, 9, FAR_NS)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6), st.integers(1, 12)), min_size=1, max_size=7),
    divisible=st.booleans(),
    joint=st.booleans(),
)
def test_insertion_makes_nothing_late_and_refusal_changes_nothing(
    rows: list[tuple[int, int, int]], divisible: bool, joint: bool
) -> None:
    line = Timeline(divisible, joint)
    for release, length, slack in rows:
        before = [(e, e.finish_ns) for e in line.entries]
        new = reservation(release, length, release + length + slack, grain=1 if divisible else None)
        if not line.insert(new):
            assert [(e, e.finish_ns) for e in line.entries] == before
        assert all(e.release_ns + e.length_ns <= e.finish_ns <= e.due_ns for e in line.entries)
        total = sum(e.length_ns for e in line.entries)
        assert not line.entries or max(e.finish_ns for e in line.entries) >= min(e.release_ns for e in line.entries) + total
    for e in list(line.entries):
        line.remove(e)
    assert line.entries == []


def test_unsteady_latencies_lose_little() -> None:
    tasks = golden(1.2, 4)
    planned = plan(tasks)

    def noisy(latency: Latency) -> Latency:
        return Latency.of([latency.p50_ns * (85 + i) // 100 for i in range(31)])

    steps = tuple(
        msgspec.structs.replace(t, steps=tuple(msgspec.structs.replace(s, latency=noisy(s.latency)) for s in t.steps))
        for t in planned.tasks
    )
    jobs: list[Job] = []
    for seed in range(3):
        jobs += simulate(tasks, msgspec.structs.replace(planned, tasks=steps), Price(), Sampled(seed), stop_ns=700 * MS).jobs
    assert sum(j.outcome == "met" for j in jobs) > 0.97 * len(jobs)


TestPriceHistory = PriceHistory.TestCase
TestPriceHistory.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
