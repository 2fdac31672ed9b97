"""What holds for every simulated run."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.events import Finished, Released, Start, Started, dump_log
from edgeengine.reporting import jobs_csv, task_rows
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, Sampled, Simulation, Worst, make_execution_times, simulate
from edgeengine.spec import Latency, Plan
from edgeengine.workload import Releases, Workload
from tests.builders import MS, PROCESSORS, plan, workload, workloads
from tests.scheduling.driver import replay

SPREAD = Latency.of([MS * i // 10 for i in range(5, 40)])


def spread(planned: Plan) -> Plan:
    """The same plan with a distribution in place of every constant."""

    def wide(latency: Latency) -> Latency:
        base = latency.p50_ns
        return Latency.of([base * (90 + i * i // 10) // 100 for i in range(30)])

    tasks = tuple(
        msgspec.structs.replace(t, steps=tuple(msgspec.structs.replace(s, latency=wide(s.latency)) for s in t.steps))
        for t in planned.tasks
    )
    return msgspec.structs.replace(planned, tasks=tasks)


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tasks=workloads(released=True), policy=st.sampled_from(["edf", "fifo"]), seed=st.integers(0, 3), late=st.booleans())
def test_nothing_is_lost_and_nothing_held_twice(tasks: Workload, policy: str, seed: int, late: bool) -> None:
    planned = spread(plan(tasks, PROCESSORS))
    if late:
        planned = msgspec.structs.replace(
            planned, overheads=dict.fromkeys(["timer", "handoff", "next", "around", "release"], SPREAD)
        )
    stop_ns = 150 * MS
    done = simulate(tasks, planned, make_policy(policy), Sampled(seed), stop_ns=stop_ns, seed=seed, keep_log=True)
    check_conserved(tasks, done, stop_ns, seed)
    check_resources(planned, done)
    log = done.log or []
    assert [line.event.at_ns for line in log] == sorted(line.event.at_ns for line in log)
    assert replay(tasks, planned, make_policy(policy), log, seed) == [line.actions for line in log]
    again = simulate(tasks, planned, make_policy(policy), Sampled(seed), stop_ns=stop_ns, seed=seed, keep_log=True)
    assert dump_log(log) == dump_log(again.log or [])
    bare = simulate(tasks, planned, make_policy(policy), Sampled(seed), stop_ns=stop_ns, seed=seed)  # by objects, not by name
    assert (jobs_csv(bare.jobs), bare.released, bare.end_ns) == (jobs_csv(done.jobs), done.released, done.end_ns)


def check_conserved(tasks: Workload, done: Simulation, stop_ns: int, seed: int) -> None:
    ends = Counter((j.task.name, j.index) for j in done.jobs)
    assert not [key for key, n in ends.items() if n > 1]
    releases = Releases(tasks, stop_ns, seed)
    certain = {t.name for t in tasks.tasks if t.probability >= 1}
    while releases.next_ns is not None:
        for name, index in releases.pop():
            assert name not in certain or (name, index) in ends, f"{name}#{index} never ended"
    logged = {(e.task, e.index) for e in (line.event for line in done.log or []) if isinstance(e, Released)}
    assert all(key in ends for key in logged if key[0] in certain)
    for row in task_rows(tasks, done.jobs, done.released):
        parts = [row[k] for k in ("met", "late", "dropped", "failed", "rejected")]
        assert sum(int(p or 0) for p in parts) == row["released"]
    for job in done.jobs:
        assert (job.cause == "") == (job.outcome == "met")
        assert job.finish_ns is not None and job.finish_ns >= job.release_ns
        assert job.start_ns is None or job.release_ns <= job.start_ns <= job.finish_ns
    assert jobs_csv(done.jobs).count(b"\n") == len(done.jobs) + 1


def check_resources(planned: Plan, done: Simulation) -> None:
    """From the log alone: between Start and Finished no other processor holds one of its resources."""
    resources = {p.name: set(p.resources) for p in planned.processors}
    held: dict[str, tuple[str, int]] = {}
    for line in done.log or []:
        if isinstance(line.event, Started):
            assert held[line.event.processor] == (line.event.task, line.event.index)
        if isinstance(line.event, Finished):
            assert held.pop(line.event.processor) == (line.event.task, line.event.index)
        for action in line.actions:
            if isinstance(action, Start):
                assert not [p for p in held if resources[p] & resources[action.processor]], f"{action} beside {held}"
                held[action.processor] = (action.task, action.index)
    assert not held


# ---- execution times ----


def test_sampled_times_repeat_with_their_seed_and_follow_the_distribution() -> None:
    def draws(seed: int) -> list[int]:
        times = Sampled(seed)
        return [times.of(SPREAD) for _ in range(2000)]

    first = sorted(draws(1))
    assert draws(1) == draws(1) != draws(2)
    assert SPREAD.min_ns <= first[0] and first[-1] <= SPREAD.max_ns
    assert first[1000] == pytest.approx(SPREAD.p50_ns, rel=0.1)
    assert first[1800] == pytest.approx(SPREAD.p90_ns, rel=0.1)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50))
def test_worst_is_never_below_the_median(samples: list[int]) -> None:
    latency = Latency.of(samples)
    assert Worst().of(latency) >= Median().of(latency)


def test_worst_case_run_ends_no_job_before_the_median_run() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 3}, "segments": 3})
    planned = spread(plan(tasks))
    median, worst = (simulate(tasks, planned, make_policy("edf"), t, stop_ns=100 * MS).jobs for t in (Median(), Worst()))
    assert all((w.finish_ns or 0) > (m.finish_ns or 0) for m, w in zip(median, worst, strict=True))


def test_times_are_made_by_name() -> None:
    assert isinstance(make_execution_times("worst", 0), Worst)
    assert make_execution_times("sampled", 3).of(SPREAD) == Sampled(3).of(SPREAD)
    with pytest.raises(UserError, match="median, worst or sampled"):
        make_execution_times("best", 0)


# ---- tasks given by latencies ----


def test_segments_are_equal_parts() -> None:
    tasks = workload({"name": "t", "period_ms": 100, "latency_ms": {"npu": 9, "cpu": 30}, "segments": 3})
    steps = plan(tasks).tasks[0].steps
    assert [(s.start, s.stop, s.processor, s.latency.p50_ns / MS) for s in steps if s.processor == "npu"] == [
        (0, 1, "npu", 3), (1, 2, "npu", 3), (2, 3, "npu", 3),
    ]  # fmt: skip
    (job,) = simulate(tasks, plan(tasks), make_policy("edf"), Median(), stop_ns=MS).jobs
    assert job.finish_ns == 9 * MS


def test_plan_for_latencies_names_what_does_not_fit() -> None:
    tasks = workload({"name": "t", "latency_ms": {"npu": 9}})
    with pytest.raises(UserError, match="'t', latency_ms: no processor 'npu'; known: a"):
        plan(tasks, PROCESSORS[:1])


def test_energy_is_that_of_the_processor_that_ran_it_and_none_for_what_did_not_finish() -> None:
    tasks = workload(
        {"name": "one", "period_ms": 10, "latency_ms": {"p": 4}, "energy_mj": 2.5},
        {"name": "by place", "period_ms": 10, "latency_ms": {"p": 9, "q": 5}, "energy_mj": {"p": 7, "q": 3}},
        {"name": "hopeless", "period_ms": 10, "latency_ms": {"p": 40}, "energy_mj": 1},
    )
    jobs = simulate(tasks, plan(tasks), make_policy("fifo"), Median(), stop_ns=10 * MS).jobs
    lines = {line.split(",")[0]: line.split(",") for line in jobs_csv(jobs).decode().splitlines()}
    assert lines["task"][-1] == "energy_mj"
    assert (lines["one"][-1], lines["by place"][-1], lines["hopeless"][-1]) == ("2.5", "3.0", "")
    assert lines["hopeless"][6:8] == ["dropped", "cannot finish in time"]
