"""What admission promises: guaranteed tasks never miss while every subgraph stays within its bound, whatever runs beside them."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from edgeengine.planning.admission import admit
from edgeengine.planning.response_time import Chain, Stage, analyse
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Worst, simulate
from edgeengine.spec import Latency, Plan
from edgeengine.spec.effects import Effects, Link
from edgeengine.workload import Workload
from tests.builders import MS, PROCESSORS, plan, processor, workload, workloads
from tests.scheduling.driver import Driver, replay

MARGIN = 1.2


class UpToTheBound:
    """Anything up to margin x p99, the bound itself often."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)

    def of(self, latency: Latency) -> int:
        share = self._random.choice([1.0, 1.0, self._random.uniform(0.3, 1.0)])
        return int(latency.p99_ns * MARGIN * share)


def verdicts(tasks: Workload, planned: Plan | None = None, **more: Any) -> dict[str, tuple[str, str]]:
    admitted = admit(tasks, planned or plan(tasks), **more)
    return {t.task: (t.verdict, t.reason) for t in admitted.tasks}


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tasks=workloads(released=True), policy=st.sampled_from(["edf", "price"]), seed=st.integers(0, 5))
def test_guaranteed_tasks_never_miss(tasks: Workload, policy: str, seed: int) -> None:
    admitted = admit(tasks, plan(tasks, PROCESSORS), margin=MARGIN)
    done = simulate(tasks, admitted, make_policy(policy), UpToTheBound(seed), stop_ns=200 * MS, seed=seed)
    response = {t.task: t.guarantee.response_ns for t in admitted.tasks if t.guarantee is not None}
    for job in done.jobs:
        if job.task.name in response:
            assert job.outcome == "met", f"{job} {job.cause}"
            nominal = job.deadline_ns - job.task.deadline_ns  # of the parent, for a child
            assert job.finish_ns - nominal <= response[job.task.name]


def test_response_time_by_hand() -> None:
    """CAN-like: high 2 of 10, middle 3 of 20 (in two parts of 1 and 2), and 4 that may block."""
    high = Chain("high", 10, 10, (Stage(0, 2, 2, 2),))
    middle = Chain("middle", 20, 20, (Stage(0, 3, 2, 2),))
    # high: 4 + 2; middle: w = 4 + 1 + ceil((w + 1) / 10) 2 = 7, then 2
    assert analyse([high, middle], {0: 4}) == {"high": [6], "middle": [9]}
    assert analyse([high, middle], {0: 9}) == {}
    piped = Chain("piped", 20, 20, (Stage(1, 5, 5, 5),), after="middle")
    assert analyse([high, middle, piped], {0: 4})["piped"] == [9 + 5]


def test_simple_task_is_guaranteed_and_says_on_what() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 4}})
    verdict, reason = verdicts(tasks)["t"]
    assert verdict == "guaranteed"
    assert "4.8 of 10 ms" in reason and "1.2 x its p99" in reason


def test_too_slow_alone_is_refused_with_the_deadline_that_would_do() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 9}})
    verdict, reason = verdicts(tasks)["t"]
    assert verdict == "refused" and "deadline_ms = 10.8" in reason


def test_blocking_names_the_task_and_the_cut() -> None:
    tasks = workload(
        {"name": "fast", "period_ms": 10, "criticality": "high", "latency_ms": {"p": 2}},
        {"name": "slow", "kind": "train", "latency_ms": {"p": 30}},
    )
    verdict, reason = verdicts(tasks)["fast"]
    assert verdict == "refused" and "subgraph of slow (36 ms)" in reason
    most_ms = float(reason.rsplit("at most ", 1)[1].split()[0])
    assert most_ms == pytest.approx(10 - 2.4, abs=0.5)
    cut = workload(
        {"name": "fast", "period_ms": 10, "criticality": "high", "latency_ms": {"p": 2}},
        {"name": "slow", "kind": "train", "latency_ms": {"p": 30}, "segments": 6},
    )
    assert verdicts(cut)["fast"][0] == "guaranteed"


def test_long_step_is_taken_from_a_task_that_has_another_way() -> None:
    tasks = workload(
        {"name": "fast", "period_ms": 10, "criticality": "high", "latency_ms": {"p": 2}},
        {"name": "slow", "kind": "train", "latency_ms": {"p": 30, "q": 50}},
    )
    admitted = admit(tasks, plan(tasks))
    assert admitted.task("fast").verdict == "guaranteed"
    assert {s.processor for s in admitted.task("slow").steps} == {"q"}


def test_taken_processor_names_the_rate_that_fits() -> None:
    tasks = workload(
        {"name": "a", "period_ms": 10, "deadline_ms": 9, "latency_ms": {"p": 3}},
        {"name": "b", "period_ms": 10, "latency_ms": {"p": 7}, "segments": 2},
    )
    found = verdicts(tasks)
    assert found["a"][0] == "guaranteed" and found["b"][0] == "best effort"
    assert "deadline_ms" in found["b"][1] or "Hz" in found["b"][1]


def test_what_has_no_least_gap_or_no_deadline_is_best_effort() -> None:
    found = verdicts(
        workload(
            {"name": "poisson", "arrivals": {"poisson": 10}, "deadline_ms": 50},
            {"name": "submitted"},
            {"name": "step", "kind": "train"},
        )
    )
    assert {v for v, _ in found.values()} == {"best effort"}


def test_child_is_guaranteed_with_its_parent_and_not_without() -> None:
    tasks = workload(
        {"name": "parent", "period_ms": 30, "latency_ms": {"p": 4}}, {"name": "child", "after": "parent", "latency_ms": {"q": 4}}
    )
    assert {v for v, _ in verdicts(tasks).values()} == {"guaranteed"}
    orphan = workload(
        {"name": "parent", "arrivals": {"poisson": 5}, "deadline_ms": 30, "latency_ms": {"p": 4}},
        {"name": "child", "after": "parent", "deadline_ms": 30, "latency_ms": {"q": 4}},
    )
    assert verdicts(orphan)["child"][0] == "best effort"


def test_memory_goes_to_the_critical_first() -> None:
    tasks = workload(
        {"name": "a", "period_ms": 50, "criticality": "background"}, {"name": "b", "period_ms": 50, "criticality": "high"}
    )
    planned = plan(tasks)
    sized = tuple(msgspec.structs.replace(t, resident_bytes=60_000_000) for t in planned.tasks)
    found = verdicts(tasks, msgspec.structs.replace(planned, tasks=sized), memory_bytes=100_000_000)
    assert found["b"][0] == "guaranteed"
    assert found["a"] == ("refused", "its sessions take 60 MB, 40 MB are left")


def test_overheads_of_the_machine_are_part_of_the_bound() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 3}})
    slow = msgspec.structs.replace(plan(tasks), overheads={"timer": Latency.constant(2 * MS), "around": Latency.constant(MS)})
    tight = admit(tasks, plan(tasks)).task("t").guarantee
    loose = admit(tasks, slow).task("t").guarantee
    assert tight is not None and tight.response_ns == round(3.6 * MS)
    assert loose is not None and loose.response_ns == round(6.6 * MS)


def test_shared_cores_are_one_server() -> None:
    tasks = workload(
        {"name": "wide", "period_ms": 20, "latency_ms": {"both": 4}, "criticality": "high"},
        {"name": "narrow", "period_ms": 20, "latency_ms": {"a": 3, "b": 3}},
    )
    planned = plan(tasks, (processor("a", "0"), processor("b", "1"), processor("both", "0", "1")))
    admitted = admit(tasks, planned)
    assert [t.verdict for t in admitted.tasks] == ["guaranteed", "guaranteed"]


def test_company_and_transfers_are_part_of_the_bound() -> None:
    tasks = workload({"name": "t", "period_ms": 30, "latency_ms": {"p": 3, "q": 90}})
    planned = plan(tasks)
    steps = tuple(msgspec.structs.replace(s, input_bytes=10**6) for s in planned.tasks[0].steps)
    processors = tuple(msgspec.structs.replace(p, memory="far" if p.name == "p" else "host") for p in planned.processors)
    slowed = msgspec.structs.replace(
        planned,
        processors=processors,
        tasks=(msgspec.structs.replace(planned.tasks[0], steps=steps),),
        effects=Effects(slowdown={"p": {"q": 1.5}}, links=(Link("host", "far", latency_ns=1000, bytes_per_s=1e9),)),
    )
    guarantee = admit(tasks, slowed).task("t").guarantee
    assert guarantee is not None
    assert guarantee.response_ns == pytest.approx(1.2 * 1.5 * 3 * MS + MS, rel=0.01)


def test_job_beyond_the_admitted_rate_is_rejected() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 3}})
    d = Driver(tasks, admit(tasks, plan(tasks)), make_policy("price"))
    d.release("t", at=0)
    d.release("t", at=9 * MS)
    assert d.ended["t", 1].outcome == "rejected" and "admitted" in d.ended["t", 1].cause
    d.release("t", at=10 * MS)
    d.drain()
    assert d.ended["t", 2].outcome == "met"


def test_background_does_not_keep_a_guarantee_against_a_high_task() -> None:
    """Its long subgraph would block the high one: it goes elsewhere, else it is refused, its jobs rejected."""
    high = {"name": "high", "period_ms": 100, "deadline_ms": 20, "criticality": "high", "latency_ms": {"p": 5}}
    slow = {"name": "slow", "period_ms": 100, "criticality": "background", "latency_ms": {"p": 30}}
    tasks = workload(high, slow, {"name": "after", "after": "slow", "criticality": "background", "latency_ms": {"p": 1}})
    admitted = admit(tasks, plan(tasks))
    assert [t.verdict for t in admitted.tasks] == ["guaranteed", "refused", "refused"]
    assert "a subgraph of it (36 ms) may block high" in admitted.task("slow").reason
    assert float(admitted.task("slow").reason.rsplit("at most ", 1)[1].split()[0]) == pytest.approx(14, abs=0.5)
    done = simulate(tasks, admitted, make_policy("edf"), UpToTheBound(1), stop_ns=1000 * MS)
    ends = {(j.task.name, j.outcome, j.cause) for j in done.jobs}
    assert ends == {("high", "met", ""), ("slow", "rejected", "refused by admission"), ("after", "dropped", "parent")}
    after = {"name": "after", "after": "slow", "criticality": "background", "latency_ms": {"q": 1}}
    elsewhere = workload(high, slow | {"latency_ms": {"p": 30, "q": 95}}, after)
    admitted = admit(elsewhere, plan(elsewhere))
    assert admitted.task("high").verdict == "guaranteed"
    assert {s.processor for s in admitted.task("slow").steps} == {"q"}


def test_less_critical_tasks_keep_their_guarantees_where_ousting_them_would_not_help() -> None:
    tasks = workload(
        {"name": "high", "period_ms": 20, "criticality": "high", "latency_ms": {"p": 15}},
        {"name": "more", "period_ms": 20, "criticality": "high", "latency_ms": {"p": 15}},
        {"name": "small", "period_ms": 100, "criticality": "background", "latency_ms": {"p": 1}},
    )
    found = verdicts(tasks)
    assert {found["high"][0], found["more"][0]} == {"refused"} and found["small"][0] == "guaranteed"


NEEDS_FORESIGHT = (
    {"name": "quick", "period_ms": 10, "latency_ms": {"p": 3}},
    {"name": "long", "period_ms": 20, "latency_ms": {"p": 8}},
)


def test_timetable_guarantees_what_priorities_cannot() -> None:
    """Once the long one runs, the quick one waits up to 8 ms and ends after 10: it fits if nobody begins before its time."""
    tasks = workload(*NEEDS_FORESIGHT, {"name": "more", "period_ms": 40, "latency_ms": {"p": 6}, "segments": 2})
    admitted = admit(tasks, plan(tasks), margin=1.0)
    assert admitted.timetable is not None and admitted.timetable.cycle_ns == 40 * MS
    assert {t.verdict for t in admitted.tasks} == {"guaranteed"}
    assert "by a timetable of 40 ms" in admitted.tasks[0].reason


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), policy=st.sampled_from(["edf", "price"]), seed=st.integers(0, 5))
def test_timetables_hold_beside_other_work_and_whatever_ends_early(data: Any, policy: str, seed: int) -> None:
    tables = [
        {
            "name": f"t{i}",
            "period_ms": data.draw(st.sampled_from([10, 20, 40])),
            "latency_ms": {p: data.draw(st.sampled_from([0.5, 1, 3])) for p in data.draw(st.sampled_from(["a", "b", "ab"]))},
            "segments": data.draw(st.integers(1, 2)),
        }
        for i in range(data.draw(st.integers(0, 3)))
    ]
    tables += [
        {"name": "quick", "period_ms": 10, "latency_ms": {"a": data.draw(st.sampled_from([2, 2.5]))}},
        {"name": "long", "period_ms": 20, "latency_ms": {"a": data.draw(st.sampled_from([6.5, 7]))}},
    ]
    others = [
        {"name": "train", "kind": "train", "latency_ms": {"a": 0.2, "b": 0.4}},
        {"name": "poisson", "arrivals": {"poisson": 60}, "deadline_ms": 30, "latency_ms": {"a": 0.2, "b": 0.5}},
    ]
    tasks = workload(*tables, *others)
    planned = plan(tasks, (processor("a", "core0"), processor("b", "core1")))
    admitted = admit(tasks, planned, margin=MARGIN)
    event(f"timetable: {admitted.timetable is not None}")
    done = simulate(tasks, admitted, make_policy(policy), UpToTheBound(seed), stop_ns=200 * MS, seed=seed, keep_log=True)
    response = {t.task: t.guarantee.response_ns for t in admitted.tasks if t.guarantee is not None}
    for job in done.jobs:
        if job.task.name in response:
            assert job.outcome == "met", f"{job} {job.cause}"
            assert job.finish_ns is not None and job.finish_ns - job.release_ns <= response[job.task.name]
    assert replay(tasks, admitted, make_policy(policy), done.log or []) == [line.actions for line in done.log or []]


def test_work_without_a_guarantee_runs_in_the_gaps_of_a_timetable() -> None:
    tasks = workload(*NEEDS_FORESIGHT, {"name": "more", "period_ms": 40, "latency_ms": {"p": 6}, "segments": 2},
                     {"name": "train", "kind": "train", "latency_ms": {"p": 0.5}})  # fmt: skip
    admitted = admit(tasks, plan(tasks), margin=1.0)
    assert admitted.timetable is not None
    done = simulate(tasks, admitted, make_policy("edf"), Worst(), stop_ns=400 * MS)
    assert sum(j.task.name == "train" and j.outcome == "met" for j in done.jobs) > 20
