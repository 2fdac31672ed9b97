"""Children whose parents fail, or never come."""

from __future__ import annotations

import pytest

from edgeengine.scheduling.policies.fifo import Fifo
from tests.builders import plan, workload
from tests.scheduling.driver import Driver


@pytest.mark.parametrize("stale", ["latest", "queue:1"])
def test_child_dropped_with_its_parent_takes_no_place_in_the_queue(stale: str) -> None:
    """Nothing came to replace the older job; and its cause is the parent, not the queue."""
    tasks = workload(
        {"name": "parent", "period_ms": 10, "latency_ms": {"p": 2}},
        {"name": "other", "latency_ms": {"q": 5}},
        {"name": "child", "after": "parent", "latency_ms": {"q": 1}, "stale": stale},
    )
    d = Driver(tasks, plan(tasks), Fifo(early_drop=False))
    d.release("other")  # holds q
    d.release("parent")
    d.finish("p")
    d.release("parent")
    d.fail("p")
    assert (d.ended["child", 1].outcome, d.ended["child", 1].cause) == ("dropped", "parent")
    assert ("child", 0) not in d.ended
    d.finish("q")
    d.finish("q")
    assert d.ended["child", 0].outcome == "met"
