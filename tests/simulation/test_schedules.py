"""Schedules computed by hand, and logs that may not change unnoticed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgeengine.events import Finished, Released, Started, load_log
from edgeengine.scheduling import Job, make_policy
from edgeengine.simulation import ExecutionTimes, Median, Sampled, simulate
from edgeengine.spec import Latency, Plan
from edgeengine.workload import Workload
from tests.builders import MS, plan, processor, workload
from tests.simulation.golden import FOLDER, SCENES, log_of


def run(tasks: Workload, planned: Plan, ms: float, policy: str = "edf", times: ExecutionTimes | None = None) -> list[Job]:
    return simulate(tasks, planned, make_policy(policy), times or Median(), stop_ns=round(ms * MS)).jobs


def rows(jobs: list[Job]) -> list[tuple[Any, ...]]:
    """(task, index, start, finish, outcome), times in ms, in order of end."""
    return [
        (j.task.name, j.index, None if j.start_ns is None else j.start_ns / MS, (j.finish_ns or 0) / MS, j.outcome) for j in jobs
    ]


def test_one_processor_in_turn() -> None:
    tasks = workload(
        {"name": "a", "period_ms": 10, "latency_ms": {"p": 4}}, {"name": "b", "period_ms": 10, "latency_ms": {"p": 3}}
    )
    assert rows(run(tasks, plan(tasks), 20)) == [
        ("a", 0, 0, 4, "met"), ("b", 0, 4, 7, "met"), ("a", 1, 10, 14, "met"), ("b", 1, 14, 17, "met"),
    ]  # fmt: skip


def test_urgent_job_waits_for_a_running_subgraph_and_goes_before_the_next() -> None:
    tasks = workload(
        {"name": "urgent", "period_ms": 6, "latency_ms": {"p": 1}, "criticality": "high"},
        {"name": "long", "period_ms": 40, "latency_ms": {"p": 9}, "segments": 3},
    )
    # urgent 0-1; long 1-4 and 4-7, through the release at 6; urgent 7-8; long 8-11; urgent 12-13
    assert rows(run(tasks, plan(tasks), 15)) == [
        ("urgent", 0, 0, 1, "met"), ("urgent", 1, 7, 8, "met"), ("long", 0, 1, 11, "met"), ("urgent", 2, 12, 13, "met"),
    ]  # fmt: skip


def test_two_processors_and_a_child() -> None:
    tasks = workload(
        {"name": "a", "period_ms": 10, "latency_ms": {"npu": 2, "cpu": 5}},
        {"name": "b", "period_ms": 10, "latency_ms": {"npu": 2, "cpu": 5}},
        {"name": "child", "after": "a", "latency_ms": {"npu": 3}},
    )
    # a takes the npu, b the cpu beside it; the child follows on the npu
    assert rows(run(tasks, plan(tasks), 10)) == [("a", 0, 0, 2, "met"), ("child", 0, 2, 5, "met"), ("b", 0, 0, 5, "met")]


def test_both_cores_exclude_each_core() -> None:
    tasks = workload(
        {"name": "wide", "period_ms": 20, "latency_ms": {"both": 4}, "criticality": "high"},
        {"name": "narrow", "period_ms": 20, "latency_ms": {"a": 3, "b": 3}},
    )
    planned = plan(tasks, (processor("a", "0"), processor("b", "1"), processor("both", "0", "1")))
    assert rows(run(tasks, planned, 20)) == [("wide", 0, 0, 4, "met"), ("narrow", 0, 4, 7, "met")]


def test_overload_drops_what_cannot_finish_and_says_when() -> None:
    tasks = workload({"name": "t", "period_ms": 2, "deadline_ms": 4, "latency_ms": {"p": 3}})
    # 0: 0-3; the second (due at 6) 3-6; the third (due at 8) cannot finish: at 6 it would be 9
    assert rows(run(tasks, plan(tasks), 6)) == [("t", 0, 0, 3, "met"), ("t", 1, 3, 6, "met"), ("t", 2, None, 6, "dropped")]


def test_training_steps_follow_each_other_until_the_end() -> None:
    tasks = workload({"name": "step", "kind": "train", "latency_ms": {"p": 4}, "segments": 2})
    jobs = run(tasks, plan(tasks), 10)
    assert rows(jobs) == [("step", 0, 0, 4, "met"), ("step", 1, 4, 8, "met"), ("step", 2, 8, 12, "met")]
    assert [j.release_ns / MS for j in jobs] == [0, 4, 8]


def with_overheads(planned: Plan, **ms: float) -> Plan:
    """`own_around` goes to each task, the rest to the machine."""
    at = {name: Latency.constant(round(value * MS)) for name, value in ms.items()}
    tasks = tuple(msgspec.structs.replace(t, around=at.get("own_around")) for t in planned.tasks)
    rest = {name: value for name, value in at.items() if name != "own_around"}
    return msgspec.structs.replace(planned, tasks=tasks, overheads=rest)


def test_each_overhead_is_paid_where_it_arises() -> None:
    tasks = workload({"name": "t", "period_ms": 100, "latency_ms": {"p": 4}, "segments": 2})
    planned = with_overheads(plan(tasks), timer=0.5, handoff=0.25, next=0.125, around=0.0625)
    log = simulate(tasks, planned, make_policy("edf"), Median(), stop_ns=MS, keep_log=True).log or []
    released, first, half, second, done = (line.event for line in log)
    assert isinstance(released, Released) and (released.at_ns, released.release_ns) == (500_000, 0)
    assert isinstance(first, Started) and first.at_ns == released.at_ns + 250_000
    assert isinstance(half, Finished) and half.at_ns == first.at_ns + 2 * MS + 62_500
    assert half.duration_ns == 2 * MS  # what the provider took, without what is around it
    assert isinstance(second, Started) and second.at_ns == half.at_ns + 125_000
    assert isinstance(done, Finished) and done.at_ns == second.at_ns + 2 * MS + 62_500


@pytest.mark.parametrize("name", ["timer", "handoff", "around", "own_around"])
def test_overhead_delays_the_end_by_itself(name: str) -> None:
    tasks = workload({"name": "t", "period_ms": 100, "latency_ms": {"p": 4}})
    (job,) = run(tasks, with_overheads(plan(tasks), **{name: 1.5}), 1)
    assert job.finish_ns == round(5.5 * MS)


def test_what_a_task_adds_itself_replaces_what_the_machine_adds() -> None:
    tasks = workload({"name": "t", "period_ms": 100, "latency_ms": {"p": 4}})
    (job,) = run(tasks, with_overheads(plan(tasks), around=9, own_around=1.5), 1)
    assert job.finish_ns == round(5.5 * MS)


def test_late_timer_never_turns_time_back() -> None:
    """It wakes for the next release while it is still late with this one."""
    tasks = workload(
        {"name": "a", "rate_hz": 900, "latency_ms": {"p": 0.2}}, {"name": "b", "period_ms": 0.3, "latency_ms": {"p": 0.1}}
    )
    late = Latency.of([100_000 * i for i in range(40)])
    planned = msgspec.structs.replace(plan(tasks), overheads={"timer": late, "handoff": late})
    log = simulate(tasks, planned, make_policy("edf"), Sampled(1), stop_ns=50 * MS, keep_log=True).log or []
    times = [line.event.at_ns for line in log]
    assert times == sorted(times)
    assert all(e.at_ns >= e.release_ns for e in (line.event for line in log) if isinstance(e, Released))


@pytest.mark.parametrize("scene", SCENES)
def test_log_is_the_golden_one(scene: str) -> None:
    golden = (FOLDER / f"{scene}.jsonl").read_bytes()
    assert load_log(log_of(scene)) == load_log(golden)  # a readable difference
    assert log_of(scene) == golden


def test_golden_logs_are_those_of_the_scenes() -> None:
    assert {f.stem for f in FOLDER.glob("*.jsonl")} == set(SCENES)
