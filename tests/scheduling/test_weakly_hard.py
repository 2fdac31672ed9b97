"""Weakly-hard tasks: what is skipped is skipped on purpose, and never more than the task allows where that is guaranteed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.planning.admission import admit
from edgeengine.reporting import task_rows
from edgeengine.reporting.violations import Violations
from edgeengine.scheduling import Job, make_policy
from edgeengine.scheduling.weakly_hard import in_pattern, must_meet
from edgeengine.simulation import Sampled, Simulation, Worst, simulate
from edgeengine.spec import Plan
from edgeengine.workload import Workload
from tests.builders import MS, plan, workload

firms = st.integers(1, 8).flatmap(lambda of: st.tuples(st.integers(1, of), st.just(of)))


@given(firm=firms, start=st.integers(0, 500), length=st.integers(1, 60))
def test_pattern_is_even(firm: tuple[int, int], start: int, length: int) -> None:
    met, of = firm
    held = sum(in_pattern(i, firm) for i in range(start, start + length))
    assert length * met // of <= held <= -(-length * met // of)
    assert sum(in_pattern(i, firm) for i in range(start, start + of)) == met


@given(firm=firms, wishes=st.lists(st.booleans(), max_size=80))
def test_meeting_what_must_be_met_keeps_every_window(firm: tuple[int, int], wishes: list[bool]) -> None:
    recent: list[bool] = []
    violations = Violations(firm)
    for index, wish in enumerate(wishes):
        recent.append(wish or must_meet(recent, firm))
        violations.add(index, recent[-1])
    assert violations.count == 0


def test_violations_are_counted_whatever_the_order_of_ends() -> None:
    violations = Violations((2, 3))
    for index, met in [(0, True), (2, False), (1, False), (3, True), (4, True)]:
        violations.add(index, met)
    assert violations.count == 2  # 0-2 and 1-3


def outcomes(done: Simulation, task: str) -> list[Job]:
    return sorted((j for j in done.jobs if j.task.name == task), key=lambda j: j.index)


def violations_of(tasks: Workload, done: Simulation) -> dict[Any, Any]:
    return {row["task"]: row["violations"] for row in task_rows(tasks, done.jobs, done.released)}


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data(), policy=st.sampled_from(["edf", "price"]), seed=st.integers(0, 5))
def test_no_window_misses_more_than_allowed_where_that_is_guaranteed(data: Any, policy: str, seed: int) -> None:
    tables = []
    for i in range(data.draw(st.integers(2, 4))):
        period = 10 << i
        table = {
            "name": f"t{i}",
            "period_ms": period,
            "latency_ms": {"a": data.draw(st.integers(period // 4, period * 2 // 3))},
            "segments": 2 << i,
        }
        if data.draw(st.integers(0, 3)):
            table["weakly_hard"] = data.draw(st.sampled_from(["1/2", "1/3", "2/5", "3/4"]))
        tables.append(table)
    tasks = workload(*tables, {"name": "rest", "kind": "train", "latency_ms": {"a": 1}})
    admitted = admit(tasks, plan(tasks), margin=1.0)
    done = simulate(tasks, admitted, make_policy(policy), Worst(), stop_ns=400 * MS, seed=seed)
    for planned in admitted.tasks:
        if planned.guarantee is None:
            continue
        jobs, firm = outcomes(done, planned.task), planned.guarantee.firm
        if firm is None:
            assert all(j.outcome == "met" for j in jobs), planned.task
            continue
        violations = Violations(firm)
        for job in jobs:
            violations.add(job.index, job.outcome == "met")
            assert job.outcome == "met" or not in_pattern(job.index, firm)
        assert violations.count == 0


def overloaded(weakly_hard: str | None, period_ms: int = 20, audio_ms: int = 12, segments: int = 3) -> tuple[Workload, Plan]:
    """As given, both want 60 % of one processor."""
    more = {} if weakly_hard is None else {"weakly_hard": weakly_hard}
    tasks = workload(
        {"name": "camera", "period_ms": 10, "latency_ms": {"p": 6}, "segments": 2} | more,
        {"name": "audio", "period_ms": period_ms, "latency_ms": {"p": audio_ms}, "segments": segments},
    )
    return tasks, plan(tasks)


def test_overload_is_taken_from_the_task_that_allows_it() -> None:
    tasks, planned = overloaded("2/4")
    done = simulate(tasks, planned, make_policy("price"), Sampled(0), stop_ns=1000 * MS)
    assert violations_of(tasks, done) == {"camera": 0, "audio": None}
    assert all(j.outcome == "met" for j in outcomes(done, "audio"))
    skipped = [j for j in outcomes(done, "camera") if j.outcome == "dropped"]
    assert 30 <= len(skipped) <= 50 and {j.cause for j in skipped} == {"skipped: 2 of 4 are enough"}
    strict_tasks, strict_plan = overloaded(None)
    strict = simulate(strict_tasks, strict_plan, make_policy("price"), Sampled(0), stop_ns=1000 * MS)
    assert any(j.outcome != "met" for j in outcomes(strict, "audio"))


def test_nothing_is_skipped_where_all_fit() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 4}, "weakly_hard": "1/5"},
                     {"name": "u", "period_ms": 20, "latency_ms": {"p": 4}})  # fmt: skip
    done = simulate(tasks, plan(tasks), make_policy("price"), Worst(), stop_ns=1000 * MS)
    assert {j.outcome for j in done.jobs} == {"met"}


def test_admission_guarantees_part_of_the_jobs_where_all_do_not_fit() -> None:
    tasks, planned = overloaded("2/4", 40, 18, 9)
    admitted = admit(tasks, planned, margin=1.0)
    assert [t.verdict for t in admitted.tasks] == ["guaranteed", "guaranteed"]
    assert admitted.task("camera").reason.startswith("2 of any 4 jobs: ")
    hard, hard_plan = overloaded(None, 40, 18, 9)
    assert [t.verdict for t in admit(hard, hard_plan, margin=1.0).tasks] != ["guaranteed", "guaranteed"]


def test_skips_are_spread() -> None:
    tasks, planned = overloaded("2/4", 40, 18, 9)
    done = simulate(tasks, admit(tasks, planned, margin=1.0), make_policy("price"), Worst(), stop_ns=1000 * MS)
    met = [j.index for j in outcomes(done, "camera") if j.outcome == "met"]
    assert max(b - a for a, b in pairwise(met)) <= 2


@pytest.mark.parametrize("text", ["2", "5/2", "0/3", "a/b", "2/", "-1/3", "1/99999999"])
def test_bad_weakly_hard_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="'t', weakly_hard"):
        workload({"name": "t", "period_ms": 10, "weakly_hard": text})


def test_weakly_hard_training_is_refused() -> None:
    with pytest.raises(UserError, match="neither training"):
        workload({"name": "t", "kind": "train", "weakly_hard": "1/2"})
