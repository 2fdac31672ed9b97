"""`after`: what becomes of a child in each end of its parent, with a pattern of its own and without, drawn and not."""

from __future__ import annotations

from typing import Any

import pytest

from edgeengine.scheduling.policies.fifo import Fifo
from tests.builders import MS, plan, workload
from tests.scheduling.driver import Driver


def family(child: dict[str, Any] | None = None, parent: dict[str, Any] | None = None, seed: int = 0) -> Driver:
    tasks = workload(
        {"name": "parent", "period_ms": 10, "latency_ms": {"p": 2}} | (parent or {}),
        {"name": "child", "after": "parent", "latency_ms": {"q": 1}} | (child or {}),
    )
    return Driver(tasks, plan(tasks), Fifo(early_drop=False), seed)


def test_child_is_released_when_its_parent_finishes_with_a_deadline_from_the_parents_release() -> None:
    d = family({"deadline_ms": 5})
    d.release("parent", at=3 * MS)
    assert [s.task for s in d.started] == ["parent"]
    d.finish("p", at=6 * MS)
    child = d.scheduler.job("child", 0)
    assert (child.release_ns, child.deadline_ns) == (6 * MS, 8 * MS)
    d.finish("q", at=8 * MS)
    assert d.ended["child", 0].outcome == "met"


def test_child_without_deadline_has_its_parents_period() -> None:
    d = family()
    d.release("parent", at=0)
    d.finish("p", at=1 * MS)
    assert d.scheduler.job("child", 0).deadline_ns == 10 * MS


def test_late_parent_is_followed_all_the_same() -> None:
    d = family()
    d.release("parent", at=0)
    d.finish("p", at=11 * MS)
    assert d.ended["parent", 0].outcome == "late"
    d.finish("q", at=12 * MS)
    assert d.ended["child", 0].outcome == "late"


@pytest.mark.parametrize("own", [False, True], ids=["without pattern", "with pattern"])
@pytest.mark.parametrize("end", ["failed", "cancelled while it runs", "cancelled before", "rejected", "stale"])
def test_child_of_a_parent_that_did_not_finish_is_dropped(end: str, own: bool) -> None:
    stale = {"rejected": {"stale": "queue:1"}, "stale": {"stale": "latest"}}.get(end, {})
    d = family({"period_ms": 10} if own else None, stale)
    d.release("parent", at=0)
    if own:
        d.release("child")
    index, outcome = 0, "dropped"
    if end == "failed":
        d.fail("p")
        outcome = "failed"
    elif end == "cancelled while it runs":
        d.cancel("parent", 0)
        d.finish("p", cut_short=True)
    else:
        index = {"cancelled before": 1, "rejected": 2, "stale": 1}[end]
        for _ in range(2 if end != "cancelled before" else 1):
            d.release("parent")
            if own:
                d.release("child")
        if end == "cancelled before":
            d.cancel("parent", 1)
        outcome = "rejected" if end == "rejected" else "dropped"
    assert d.ended["parent", index].outcome == outcome
    child = d.ended["child", index]
    assert (child.outcome, child.cause) == ("dropped", "parent")
    assert all((s.task, s.index) != ("child", index) for s in d.started)
    d.drain()
    d.check_drained()


def test_child_with_a_pattern_waits_for_the_parents_job_of_its_index() -> None:
    d = family({"period_ms": 10, "deadline_ms": 4})
    d.release("child", at=0)
    d.release("parent", at=0)
    assert [s.task for s in d.started] == ["parent"]
    assert d.scheduler.job("child", 0).deadline_ns == 4 * MS
    d.finish("p", at=2 * MS)
    assert d.scheduler.job("child", 0).release_ns == 0
    assert [s.task for s in d.started] == ["parent", "child"]


def test_child_with_a_pattern_released_after_its_parent_ended_starts_at_once() -> None:
    d = family({"period_ms": 10})
    d.release("parent", at=0)
    d.finish("p", at=2 * MS)
    d.release("child", at=3 * MS)
    assert d.started[-1].task == "child"
    d.release("parent", at=10 * MS)
    d.fail("p")
    d.release("child", at=11 * MS)
    assert (d.ended["child", 1].outcome, d.ended["child", 1].cause) == ("dropped", "parent")


def test_child_that_was_cancelled_while_it_waited_does_not_start_with_its_parents_end() -> None:
    d = family({"period_ms": 10})
    d.release("parent")
    d.release("child")
    d.cancel("child", 0)
    d.finish("p")
    assert [s.task for s in d.started] == ["parent"]
    d.drain()
    d.check_drained()


def test_grandchild_is_dropped_with_its_line() -> None:
    tasks = workload({"name": "a", "period_ms": 10}, {"name": "b", "after": "a"}, {"name": "c", "after": "b"})
    d = Driver(tasks, plan(tasks), Fifo())
    d.release("a")
    d.fail("p")
    assert [(d.ended[t, 0].outcome, d.ended[t, 0].cause) for t in "abc"] == [
        ("failed", "it broke"), ("dropped", "parent"), ("dropped", "parent"),
    ]  # fmt: skip


@pytest.mark.parametrize("own", [False, True], ids=["without pattern", "with pattern"])
def test_probability_draws_about_its_share_and_by_seed(own: bool) -> None:
    def drawn(seed: int) -> set[int]:
        d = family({"probability": 0.3} | ({"period_ms": 10} if own else {}), seed=seed)
        for i in range(300):
            d.release("parent", at=i * 10 * MS)
            d.finish("p")
            if own:
                d.release("child")
            if d.running:
                d.finish("q")
        assert not d.scheduler.alive()
        return {i for name, i in d.ended if name == "child"}

    first = drawn(1)
    assert 60 < len(first) < 120
    assert drawn(1) == first != drawn(2)


def test_child_not_drawn_is_not_counted_when_its_parent_fails() -> None:
    d = family({"probability": 0.0})
    d.release("parent")
    d.fail("p")
    assert d.order == [("parent", 0)]
