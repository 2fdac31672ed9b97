"""What a rehearsal reads out of a log, and what a plan becomes by it."""

from __future__ import annotations

import msgspec

from edgeengine.engine.overheads import arounds_of, overheads_of
from edgeengine.engine.rehearse import Rehearsal, TakeTurns, in_service, rehearsed_plan
from edgeengine.events import Finished, LogLine, Released, Start, Started
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Latency
from tests.builders import MS, plan, processor, workload

CHAIN = {"name": "t", "period_ms": 10, "latency_ms": {"a": 2, "b": 2}, "segments": 2}


def test_overheads_are_read_from_where_they_arise() -> None:
    log = [
        LogLine(Released(1100, "x", 0, 1000, more=True), []),
        LogLine(Released(1130, "t", 0, 1000), [Start("t", 0, "s0_1", "a")]),
        LogLine(Started(1180, "t", 0, "s0_1", "a"), []),
        LogLine(Finished(2200, "t", 0, "s0_1", "a", "done", 1000), [Start("t", 0, "s1_2", "a")]),
        LogLine(Started(2215, "t", 0, "s1_2", "a"), []),
        LogLine(Finished(3220, "t", 0, "s1_2", "a", "done", 1000), []),
        LogLine(Released(3220, "step", 1, 3220), []),  # a training step releases itself: no timer in it
    ]
    found = overheads_of(log)
    assert found == {"timer": [100], "release": [30], "handoff": [50], "next": [15], "around": [20, 5]}
    assert arounds_of(log) == {"t": [20, 5]}


def test_simulating_with_overheads_gives_them_back() -> None:
    """The simulator adds what the log reader takes apart."""
    tasks = workload(CHAIN, {"name": "other", "period_ms": 20, "latency_ms": {"b": 1}})
    given = {"timer": 300, "release": 40, "handoff": 70, "next": 20, "around": 10}
    planned = msgspec.structs.replace(plan(tasks), overheads={name: Latency.constant(v) for name, v in given.items()})
    log = simulate(tasks, planned, TakeTurns(1000 * MS), Median(), stop_ns=100 * MS, keep_log=True).log or []
    assert {name: set(values) for name, values in overheads_of(log).items()} == {name: {v} for name, v in given.items()}


def test_every_allowed_processor_gets_its_turn_then_the_planned_one_all() -> None:
    tasks = workload(CHAIN)
    log = simulate(tasks, plan(tasks), TakeTurns(1000 * MS), Median(), stop_ns=300 * MS, keep_log=True).log or []
    starts = [a.processor for line in log for a in line.actions if isinstance(a, Start) and a.subgraph == "s0_1"]
    assert starts[:8].count("a") == starts[:8].count("b") == 4
    assert set(starts[8:]) == {"a"}


def test_overload_is_not_rehearsed_to_the_end() -> None:
    tasks = workload(
        {"name": "heavy", "period_ms": 1, "deadline_ms": 1000, "latency_ms": {"a": 20}},
        {"name": "late", "period_ms": 5, "latency_ms": {"a": 20}},
    )
    done = simulate(tasks, plan(tasks), TakeTurns(100 * MS), Median(), stop_ns=100 * MS)
    assert done.end_ns <= 120 * MS
    assert len(done.jobs) == 120
    assert {j.cause for j in done.jobs if j.outcome == "dropped"} == {"rehearsal over", "too late"}


def test_plan_takes_what_holds_in_service_and_pools_equivalent_processors() -> None:
    cores = (processor("a", "core0"), processor("b", "core1"))
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"a": 2, "b": 2}})
    seen = Rehearsal(
        steps={("t", "s0_1", "a"): Latency.of([10, 20, 30]), ("t", "s0_1", "b"): Latency.of([40, 50])},
        around={"t": Latency.constant(7)},
        overheads={"timer": Latency.constant(5)},
    )
    made = rehearsed_plan(plan(tasks, cores), seen, {"timer": Latency.constant(1), "handoff": Latency.constant(2)})
    latencies = {s.processor: s.latency for s in made.task("t").steps}
    assert latencies["a"] == latencies["b"] and latencies["a"].n == 5
    assert 10 <= latencies["a"].min_ns < 20 and 40 < latencies["a"].max_ns <= 50
    assert made.task("t").around == Latency.constant(7)
    assert made.overheads == {"timer": Latency.constant(5), "handoff": Latency.constant(2)}


def test_condition_is_the_period_of_the_task_or_of_whom_it_follows() -> None:
    made = workload(CHAIN, {"name": "child", "after": "t", "latency_ms": {"a": 1}}, {"name": "free", "latency_ms": {"a": 1}})
    assert [in_service(t, made) for t in made.tasks] == ["period:10", "period:10", "in service"]


def test_without_a_limit_of_turns_every_processor_is_measured_as_often() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"a": 2, "b": 2, "c": 2}})
    log = simulate(tasks, plan(tasks), TakeTurns(1000 * MS, None), Median(), stop_ns=300 * MS, keep_log=True).log or []
    starts = [a.processor for line in log for a in line.actions if isinstance(a, Start)]
    assert [starts.count(p) for p in "abc"] == [10, 10, 10]
