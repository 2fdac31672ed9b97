"""FIFO and EDF: the order they start in, what they drop early, the processor they choose; and the check of others' policies."""

from __future__ import annotations

import random
from typing import Any

import pytest

from edgeengine.errors import UserError
from edgeengine.events import AnyAction
from edgeengine.scheduling import make_policy, policy_names
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.fifo import Fifo
from edgeengine.simulation import Median, simulate
from edgeengine.testing import check_policy
from tests.builders import MS, plan, processor, workload
from tests.scheduling.driver import Driver

PLUG = {"name": "plug", "latency_ms": {"p": 1}}  # holds the processor while the others arrive


def order(policy: Any, *tasks: dict[str, Any]) -> list[str]:
    """Release the tasks in turn, a millisecond apart, while the processor is taken; the order in which they then start."""
    made = workload(PLUG, *tasks)
    d = Driver(made, plan(made), policy)
    d.release("plug", at=0)
    for i, t in enumerate(tasks):
        d.release(t["name"], at=(i + 1) * MS)
    d.drain()
    d.check_drained()
    return [s.task for s in d.started[1:]]


def test_fifo_starts_by_release_whatever_the_class_and_deadline() -> None:
    names = order(
        Fifo(), {"name": "a", "criticality": "background", "deadline_ms": 900}, {"name": "b", "deadline_ms": 90},
        {"name": "c", "criticality": "high", "deadline_ms": 80},
    )  # fmt: skip
    assert names == ["a", "b", "c"]


def test_fifo_breaks_ties_by_the_order_of_the_tasks() -> None:
    made = workload(PLUG, {"name": "z"}, {"name": "a"})
    d = Driver(made, plan(made), Fifo())
    d.release("plug", at=0)
    d.release("a")
    d.release("z")
    d.drain()
    assert [s.task for s in d.started] == ["plug", "z", "a"]


def test_edf_starts_by_class_then_deadline() -> None:
    names = order(
        Edf(), {"name": "background", "criticality": "background", "deadline_ms": 20}, {"name": "normal late", "deadline_ms": 90},
        {"name": "normal soon", "deadline_ms": 60}, {"name": "high late", "criticality": "high", "deadline_ms": 500},
        {"name": "high soon", "criticality": "high", "deadline_ms": 400}, {"name": "no deadline"},
    )  # fmt: skip
    assert names == ["high soon", "high late", "normal soon", "normal late", "no deadline", "background"]


def test_training_comes_last_under_edf() -> None:
    names = order(Edf(), {"name": "step", "kind": "train"}, {"name": "background", "criticality": "background"})
    assert names == ["background", "step"]


def test_edf_gives_way_between_subgraphs_and_never_within() -> None:
    made = workload({"name": "long", "segments": 2, "latency_ms": {"p": 8}}, {"name": "urgent", "criticality": "high"})
    d = Driver(made, plan(made), Edf())
    d.release("long", at=0)
    d.release("urgent", at=1)
    assert [s.task for s in d.started] == ["long"]
    d.finish("p", at=4 * MS)
    d.finish("p", at=5 * MS)
    assert [s.task for s in d.started] == ["long", "urgent", "long"]


@pytest.mark.parametrize("policy", [Edf, Fifo])
def test_early_drop_ends_what_cannot_finish_in_time(policy: Any) -> None:
    def run(early_drop: bool) -> Driver:
        made = workload(PLUG, {"name": "t", "segments": 2, "latency_ms": {"p": 4}, "deadline_ms": 6})
        d = Driver(made, plan(made), policy(early_drop=early_drop))
        d.release("plug", at=0)
        d.release("t", at=0)
        d.finish("p", at=2 * MS + 1)
        d.drain()
        return d

    dropped = run(True).ended["t", 0]
    assert (dropped.outcome, dropped.cause, dropped.start_ns) == ("dropped", "cannot finish in time", None)
    assert run(False).ended["t", 0].start_ns is not None


@pytest.mark.parametrize("policy", [Edf, Fifo])
def test_early_drop_spares_what_can_just_finish(policy: Any) -> None:
    made = workload(PLUG, {"name": "t", "latency_ms": {"p": 4}, "deadline_ms": 6})
    d = Driver(made, plan(made), policy())
    d.release("plug", at=0)
    d.release("t", at=0)
    d.finish("p", at=2 * MS)
    assert d.running["p"].task == "t"


def test_jobs_take_the_processor_that_finishes_them_first_counting_the_rest_of_the_chain() -> None:
    made = workload({"name": "t", "latency_ms": {"slow": 5, "fast": 2}})
    d = Driver(made, plan(made), Edf())
    for _ in range(3):
        d.release("t")
    assert [s.processor for s in d.started] == ["fast", "slow"]


def test_processors_that_share_a_core_are_not_used_together() -> None:
    made = workload({"name": "t", "latency_ms": {"both": 1, "a": 3, "b": 3}})
    d = Driver(made, plan(made, (processor("a", "core0"), processor("b", "core1"), processor("both", "core0", "core1"))), Edf())
    d.release("t")
    d.release("t")
    assert [s.processor for s in d.started] == ["both"]


# ---- the check for third parties ----


@pytest.mark.parametrize("policy", [Edf, Fifo, lambda: Edf(early_drop=False), lambda: Fifo(early_drop=False)])
def test_built_in_policies_keep_the_contract(policy: Any) -> None:
    check_policy(policy)


class Broken(Edf):
    name = "broken"


def test_check_finds_a_policy_that_draws_unseeded_numbers() -> None:
    class Moody(Broken):
        def decide(self, view: Any, now: int) -> list[AnyAction]:
            self.early_drop = random.SystemRandom().random() < 0.5
            return super().decide(view, now)

    with pytest.raises(AssertionError, match="decided differently"):
        check_policy(Moody)


def test_check_finds_a_policy_that_keeps_state_between_runs() -> None:
    class Remembers(Broken):
        calls = 0

        def decide(self, view: Any, now: int) -> list[AnyAction]:
            Remembers.calls += 1
            return [] if Remembers.calls % 7 == 0 else super().decide(view, now)

    with pytest.raises(AssertionError, match="decided differently"):
        check_policy(Remembers)


def test_check_finds_a_policy_that_loses_jobs() -> None:
    class Forgets(Broken):
        def decide(self, view: Any, now: int) -> list[AnyAction]:
            return [a for a in super().decide(view, now) if getattr(a, "task", "") != "overload"]

    with pytest.raises(AssertionError, match="never ended"):
        check_policy(Forgets)


def test_check_finds_a_policy_that_gives_no_cause() -> None:
    class Silent(Broken):
        def decide(self, view: Any, now: int) -> list[AnyAction]:
            actions = super().decide(view, now)
            for a in actions:
                if hasattr(a, "cause"):
                    a.cause = ""
            return actions

    with pytest.raises(AssertionError, match="without a cause"):
        check_policy(Silent)


# ---- by name ----


def test_policies_are_made_by_name_and_afresh() -> None:
    assert {"edf", "fifo"} <= set(policy_names())
    assert isinstance(make_policy("edf"), Edf)
    assert make_policy("fifo") is not make_policy("fifo")


def test_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'lifo'.*edf, fifo"):
        make_policy("lifo")


def test_early_drop_keeps_edf_useful_in_overload() -> None:
    """Half as much again as the processor can do: without early drop all jobs end late, one after the other."""
    made = workload({"name": "t", "period_ms": 2, "deadline_ms": 7, "latency_ms": {"p": 3}})

    def met(policy: Any) -> int:
        d = Driver(made, plan(made), policy)
        at, end = 0, None
        for i in range(60):
            at = i * 2 * MS
            while d.running and end is not None and end <= at:
                d.finish("p", at=end)
                end = end + 3 * MS if d.running else None
            was_idle = not d.running
            d.release("t", at=at)
            if was_idle and d.running:
                end = at + 3 * MS
        return sum(j.outcome == "met" for j in d.ended.values())

    assert met(Edf()) > 2 * met(Edf(early_drop=False))


def test_job_waits_for_the_processor_that_makes_it() -> None:
    """Adding a slow processor must not add misses: nothing starts where it would be late."""
    tasks = workload(
        {"name": "a", "period_ms": 20, "latency_ms": {"npu": 8.5, "cpu": 40}},
        {"name": "b", "period_ms": 33, "latency_ms": {"npu": 8.5, "cpu": 40}},
    )
    done = simulate(tasks, plan(tasks), Edf(), Median(), stop_ns=2000 * MS)
    assert {j.outcome for j in done.jobs} == {"met"}


def test_awaited_processor_is_kept_for_the_more_urgent_job() -> None:
    tasks = workload(
        {"name": "first", "latency_ms": {"npu": 10}},
        {"name": "urgent", "criticality": "high", "deadline_ms": 25, "latency_ms": {"npu": 10, "cpu": 40}},
        {"name": "later", "deadline_ms": 1000, "latency_ms": {"npu": 10, "cpu": 40}},
    )
    d = Driver(tasks, plan(tasks), Edf())
    for name in ("first", "urgent", "later"):
        d.release(name)
    d.finish("npu", 10 * MS)
    assert d.scheduler.job("urgent", 0).processor is not None
