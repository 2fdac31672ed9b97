"""The published policies: each one's rule seen at work, and the contract kept by all."""

from __future__ import annotations

from typing import Any

import pytest

from edgeengine.scheduling.expected_finish import expected_finish, waits_ns
from edgeengine.scheduling.policies import BUILT_IN, PUBLISHED
from edgeengine.scheduling.policies.fixed_worker import FixedBalanced, FixedWorker
from edgeengine.scheduling.policies.lalarand import Lalarand
from edgeengine.scheduling.policies.mapscore import MapScore
from edgeengine.simulation import Median, simulate
from edgeengine.testing import check_policy
from tests.builders import MS, plan, workload
from tests.scheduling.driver import Driver, Scripted

PLUG = {"name": "plug", "latency_ms": {"p": 1}}


def driver(policy: Any, *tasks: dict[str, Any]) -> Driver:
    made = workload(*tasks)
    return Driver(made, plan(made), policy)


def released(policy: Any, *tasks: dict[str, Any]) -> list[tuple[str, str]]:
    """(task, processor) of the starts when all tasks are released at once, in turn."""
    d = driver(policy, *tasks)
    for t in tasks:
        d.release(t["name"])
    return [(s.task, s.processor) for s in d.started]


def order(policy: Any, *tasks: dict[str, Any]) -> list[str]:
    """The order on one processor of tasks that came while it was taken."""
    d = driver(policy, PLUG, *tasks)
    d.release("plug", at=0)
    for t in tasks:
        d.release(t["name"])
    d.drain()
    d.check_drained()
    return [s.task for s in d.started[1:]]


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("drop", ["never", "overdue", "hopeless"])
def test_contract_is_kept(name: str, drop: str) -> None:
    check_policy(lambda: PUBLISHED[name](drop=drop))


@pytest.mark.parametrize("name", BUILT_IN)
def test_name_is_the_registered_one(name: str) -> None:
    assert BUILT_IN[name]().name == name


def test_classical_orders() -> None:
    tasks = (
        {"name": "slow", "period_ms": 50, "deadline_ms": 20, "latency_ms": {"p": 9}},
        {"name": "often", "period_ms": 30, "deadline_ms": 29, "latency_ms": {"p": 4}},
        {"name": "short", "period_ms": 90, "deadline_ms": 40, "latency_ms": {"p": 1}},
    )
    assert order(BUILT_IN["global-edf"](), *tasks) == ["slow", "often", "short"]
    assert order(BUILT_IN["rm"](), *tasks) == ["often", "slow", "short"]
    assert order(BUILT_IN["dm"](), *tasks) == ["slow", "often", "short"]
    assert order(BUILT_IN["sjf"](), *tasks) == ["short", "often", "slow"]
    assert order(BUILT_IN["llf"](), *tasks) == ["slow", "often", "short"]  # laxities 11, 25, 39
    assert order(BUILT_IN["lalarand"](), *tasks) == ["often", "slow", "short"]
    assert order(BUILT_IN["xrbench"](), *tasks) == ["often", "short", "slow"]  # by name


def test_work_conserving_policies_take_a_slow_processor_rather_than_wait() -> None:
    tasks = [{"name": n, "deadline_ms": 10, "latency_ms": {"npu": 2, "cpu": 50}} for n in ("a", "b")]
    assert released(BUILT_IN["global-edf"](), *tasks) == [("a", "npu"), ("b", "cpu")]


def test_expected_finish_is_bands_recurrence() -> None:
    made = workload({"name": "t", "segments": 2, "latency_ms": {"cpu": 4, "npu": 2}})
    d = Driver(made, plan(made), Scripted())
    d.release("t")
    job = d.scheduler.job("t", 0)

    def finish(cpu_ms: int, npu_ms: int) -> tuple[int, str]:
        """With the processors busy for so long."""
        ns, first = expected_finish(job, [cpu_ms * MS, npu_ms * MS])
        assert first is not None
        return ns // MS, first.processor.name

    assert finish(0, 0) == (2, "npu")
    assert finish(0, 2) == (3, "cpu")  # the first unit on the cpu until 2, the second on the npu: 1 + max(2, 2)
    assert finish(0, 9) == (4, "cpu")
    assert finish(9, 1) == (3, "npu")
    assert waits_ns(d.scheduler.view, 0) == [0, 0]


def test_heft_serves_the_longest_first_and_yields_when_its_processor_is_busy() -> None:
    tasks = [
        {"name": "short", "latency_ms": {"npu": 1, "cpu": 9}}, {"name": "long", "latency_ms": {"npu": 5, "cpu": 30}},
    ]  # fmt: skip
    assert released(BUILT_IN["heft"](), *tasks)[0] == ("short", "npu")
    assert order(BUILT_IN["heft"](), {"name": "a", "latency_ms": {"p": 1}}, {"name": "b", "latency_ms": {"p": 5}}) == ["b", "a"]


def test_least_slack_drops_what_its_best_path_would_make_late() -> None:
    d = driver(BUILT_IN["least-slack"](), PLUG, {"name": "t", "latency_ms": {"p": 4}, "deadline_ms": 4.5})
    d.release("plug", at=0)
    d.release("t")
    assert d.ended["t", 0].outcome == "dropped"


def test_fixed_worker_waits_for_its_own() -> None:
    tasks = [{"name": n, "latency_ms": {"npu": 2, "cpu": 5}} for n in ("a", "b")]
    assert released(FixedWorker({"a": "cpu", "b": "cpu"}), *tasks) == [("a", "cpu")]
    assert released(FixedWorker(), *tasks) == [("a", "npu")]  # both on the fastest


def test_balanced_map_spreads_the_load() -> None:
    tasks = [{"name": n, "period_ms": 10, "latency_ms": {"npu": 4, "cpu": 6}} for n in ("a", "b")]
    assert {p for _, p in released(FixedBalanced(), *tasks)} == {"npu", "cpu"}


def test_round_robin_gives_each_idle_processor_the_first_job_it_can_run() -> None:
    tasks = [{"name": "a", "latency_ms": {"npu": 2}}, {"name": "b", "latency_ms": {"cpu": 5, "npu": 1}}]
    made = workload(PLUG | {"latency_ms": {"cpu": 1, "npu": 1}}, *tasks)
    d = Driver(made, plan(made), BUILT_IN["round-robin"]())
    for n in ("a", "b"):
        d.release(n)
    assert [(s.task, s.processor) for s in d.started] == [("a", "npu"), ("b", "cpu")]


def test_whole_models_go_on_where_they_began_before_anything_else() -> None:
    d = driver(FixedWorker(), {"name": "long", "segments": 2, "latency_ms": {"p": 8}}, {"name": "urgent", "latency_ms": {"p": 1}})
    d.release("long", at=0)
    d.release("urgent", at=1)
    d.finish("p", at=4 * MS)
    assert [s.task for s in d.started] == ["long", "long"]


def test_lalarand_runs_each_layer_where_it_was_placed() -> None:
    d = driver(
        Lalarand({("t", 0): "npu", ("t", 1): "cpu"}),
        {"name": "t", "segments": 2, "period_ms": 90, "latency_ms": {"cpu": 8, "npu": 2}},
    )
    d.release("t")
    d.drain()
    assert [s.processor for s in d.started] == ["npu", "cpu"]


def test_mapscore_prefers_the_urgent_on_the_processor_that_suits_it() -> None:
    tasks = [
        {"name": "calm", "deadline_ms": 500, "latency_ms": {"npu": 4, "cpu": 5}},
        {"name": "urgent", "deadline_ms": 10, "latency_ms": {"npu": 4, "cpu": 40}},
    ]
    d = driver(MapScore(), {"name": "plug", "latency_ms": {"npu": 1, "cpu": 1}}, *tasks)
    d.release("plug")
    d.release("plug")
    for t in tasks:
        d.release(t["name"])
    d.finish("npu", 1)
    assert d.started[-1].task == "urgent"


def test_overdue_jobs_are_dropped_only_when_asked() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"p": 25}})

    def outcomes(drop: str) -> set[str]:
        return {j.outcome for j in simulate(tasks, plan(tasks), BUILT_IN["sjf"](drop=drop), Median(), stop_ns=200 * MS).jobs}

    assert outcomes("never") == {"late"}
    assert outcomes("overdue") == {"late", "dropped"}
    assert outcomes("hopeless") == {"dropped"}
