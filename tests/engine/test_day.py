"""Days of device time on the virtual clock: the live engine, its workers and queues, hold no more at the end than at the start.

Minutes of it in the suite; `make soak` runs 24 hours (EDGEENGINE_HOURS).
"""

from __future__ import annotations

import gc
import os
import tracemalloc

from edgeengine.clock import ORDER_MAIN
from edgeengine.engine import Engine, JobResult
from edgeengine.io import CallbackSink
from edgeengine.testing import VirtualClock
from edgeengine.workload import parse_workload
from tests.builders import plan, processor, toml, with_bundles
from tests.engine.faulty import Faulty

HOURS = float(os.environ.get("EDGEENGINE_HOURS", "0.1"))
TWO = (processor("a"), processor("b"))
GROWTH_BYTES = 64_000  # less than one more byte per job of a day


def test_a_day_leaves_no_more_than_its_first_quarter() -> None:
    """An exercise coach's rhythm: a decision twice a second, a chain behind it, and now and then a load that is too much."""
    tasks = parse_workload(
        toml(
            {"name": "exercise", "latency_ms": {"a": 3, "b": 9}, "period_ms": 500, "deadline_ms": 50, "criticality": "high"},
            {"name": "after", "latency_ms": {"a": 5, "b": 5}, "after": "exercise"},
            {"name": "listen", "latency_ms": {"b": 20}, "period_ms": 320},
            {"name": "burst", "latency_ms": {"a": 400}, "period_ms": 30_000, "deadline_ms": 300, "criticality": "background"},
        )
    )
    named, planned, bundles = with_bundles(tasks, plan(tasks, TWO))
    clock, ends = VirtualClock(), [0]

    def ended(result: JobResult) -> None:
        ends[0] += 1

    provider = Faulty(clock, planned.processors, lambda *_: "")
    seconds = 3600 * HOURS
    tracemalloc.start()
    try:
        sinks = {t.name: CallbackSink(ended) for t in named.tasks}
        with Engine(
            named, planned, seconds=seconds, bundles=bundles, clock=clock, providers={"null": provider}, sinks=sinks
        ) as engine:
            held = []
            for quarter in (1, 4):
                clock.sleep_until(round(quarter / 4 * seconds * 1e9), ORDER_MAIN, 0)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            engine.wait()
            released = sum(engine.released.values())
    finally:
        tracemalloc.stop()
    assert held[1] - held[0] < GROWTH_BYTES
    # a sink has a queue of its own, and a virtual day is faster than any: what does not fit is left out
    assert released > 7 * seconds and 0 < ends[0] <= released
