"""A processor that goes wrong is quarantined and probed back; jobs fail or go elsewhere; nothing is lost or waits for ever."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.clock import ORDER_MAIN
from edgeengine.devices import usable_cores
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine import Engine
from edgeengine.engine import engine as engine_module
from edgeengine.engine import health as health_module
from edgeengine.engine.health import FIRST_PROBE_NS, LONGEST_PROBE_NS, Health, Samples, nan_in
from edgeengine.engine.watchdog import CHECK_NS
from edgeengine.errors import DeviceError, DeviceLost
from edgeengine.events import Failed, LogLine, ProcessorBack
from edgeengine.scheduling import Job, make_policy
from edgeengine.spec import Latency, Step
from edgeengine.testing import VirtualClock
from edgeengine.workload import Workload, parse_workload
from tests.builders import MS, plan, processor, toml, with_bundles
from tests.engine.faulty import HANG_NS, Faulty
from tests.scheduling.driver import replay

TWO = (processor("a"), processor("b"))
RUNS = 1000
SECOND_NS = 1000 * MS


def run(
    tasks: Workload, fault: Callable[[str, int], str], seconds: float = 1.0, hang_ns: int = HANG_NS, **options: Any
) -> tuple[list[Job], list[LogLine], dict[str, int]]:
    """Jobs, log and released counts of a run on two null processors; the log was replayed with equal actions."""
    named, planned, bundles = with_bundles(tasks, plan(tasks, TWO))
    clock = VirtualClock()
    provider = Faulty(clock, planned.processors, fault, hang_ns)
    with Engine(
        named, planned, seconds=seconds, bundles=bundles, clock=clock, providers={"null": provider}, keep_jobs=True,
        keep_log=True, **options,
    ) as engine:  # fmt: skip
        engine.wait()
        jobs, log, released = engine.jobs, engine.log, engine.released
    let_hung_threads_end(clock)
    assert replay(named, planned, make_policy("edf"), log) == [line.actions for line in log]
    return jobs, log, released


def let_hung_threads_end(clock: VirtualClock) -> None:
    clock.sleep_until(clock.now_ns() + 2 * HANG_NS, ORDER_MAIN, 0)


def lost(log: list[LogLine]) -> list[int]:
    return [line.event.at_ns for line in log if isinstance(line.event, Failed) and line.event.lost]


def back(log: list[LogLine]) -> list[int]:
    return [line.event.at_ns for line in log if isinstance(line.event, ProcessorBack)]


def ticker(**latency_ms: float) -> Workload:
    return parse_workload(toml({"name": "t", "period_ms": 10, "latency_ms": latency_ms}))


@pytest.mark.parametrize(("kind", "faults"), [("raise", 3), ("nan", 3), ("lost", 1)])
def test_faulty_processor_is_quarantined_and_probed_back(kind: str, faults: int) -> None:
    jobs, log, _ = run(ticker(a=2), lambda _, n: kind if 5 <= n < 5 + faults else "")
    failed = [j for j in jobs if j.outcome == "failed"]
    causes = {"raise": "it broke", "nan": "output 'y' holds NaN", "lost": "it is gone"}
    assert [j.index for j in failed[:faults]] == list(range(5, 5 + faults))
    assert {j.cause for j in failed[:faults]} == {causes[kind]}
    assert {j.cause for j in failed[faults:]} == {f"no processor left: a is lost ({causes[kind]})"}
    (at,), (again,) = lost(log), back(log)
    assert again == at + FIRST_PROBE_NS + 2 * MS  # the pause, and the probe's own run
    assert all(j.outcome == "met" for j in jobs if j.release_ns >= again)


def test_one_fault_among_good_runs_costs_one_job_only() -> None:
    jobs, log, _ = run(ticker(a=2), lambda _, n: "raise" if n % 3 else "")
    assert not lost(log)
    assert Counter(j.outcome for j in jobs) == {"met": 34, "failed": 66}


def test_probes_that_fail_are_made_ever_less_often() -> None:
    _, log, _ = run(ticker(a=2), lambda _, n: "raise" if n < 3 + 2 else "", seconds=3)
    (at,), (again,) = lost(log), back(log)
    assert again == at + 7 * FIRST_PROBE_NS + 3 * 2 * MS  # pauses of 1, 2 and 4


def test_hanging_run_is_given_up_its_job_fails_and_the_rest_go_on() -> None:
    jobs, log, _ = run(ticker(a=2, b=3), lambda name, n: "hang" if (name, n) == ("a", 5) else "", seconds=2)
    (hung,) = [j for j in jobs if j.outcome == "failed"]
    assert hung.cause == "hang: it did not return in time" and hung.index == 5
    (at,) = lost(log)
    assert SECOND_NS < at - hung.release_ns <= SECOND_NS + 3 * CHECK_NS
    assert len(jobs) == 200 and Counter(j.outcome for j in jobs) == {"met": 199, "failed": 1}
    assert {j.last_processor.name for j in jobs if j.index > 5 and j.last_processor} == {"b"}


def test_slow_run_is_not_taken_for_a_hang() -> None:
    jobs, log, _ = run(parse_workload(toml({"name": "t", "period_ms": 400, "latency_ms": {"a": 300}})), lambda *_: "stall")
    assert not lost(log) and {j.outcome for j in jobs} == {"met"}


def test_processor_comes_back_when_the_hung_run_returns_after_all() -> None:
    hung = 4 * SECOND_NS
    jobs, log, _ = run(ticker(a=2), lambda _, n: "hang" if n == 5 else "", seconds=6, hang_ns=hung)
    (at,), (again,) = lost(log), back(log)
    assert at < 2 * SECOND_NS and again == 50 * MS + 2 * MS + hung + FIRST_PROBE_NS + 2 * MS
    assert {j.cause for j in jobs if 0 < j.release_ns - at < again - at} == {
        "no processor left: a is lost (hang: it did not return in time)"
    }
    assert all(j.outcome == "met" for j in jobs if j.release_ns >= again)


def test_close_is_bounded_and_names_what_it_leaves_behind() -> None:
    tasks = parse_workload(toml({"name": "t", "latency_ms": {"a": 2}}, {"name": "u", "latency_ms": {"b": 2}}))
    named, planned, bundles = with_bundles(tasks, plan(tasks, TWO))
    clock = VirtualClock()
    provider = Faulty(clock, planned.processors, lambda name, n: "hang" if (name, n) == ("a", 1) else "")
    provider.close = lambda: pytest.fail("closed while it runs something")  # type: ignore[method-assign]
    with Engine(named, planned, bundles=bundles, clock=clock, providers={"null": provider}) as engine:
        futures = []
        for task in ("t", "u", "t", "u"):
            futures.append(engine.submit(task))
            clock.sleep_until(clock.now_ns() + 10 * MS, ORDER_MAIN, 0)
    assert clock.now_ns() < 3 * SECOND_NS
    assert engine.abandoned == ("a",)
    assert [f.result(0).outcome for f in futures] == ["met", "met", "failed", "met"]
    assert futures[2].result(0).cause.startswith("hang")
    let_hung_threads_end(clock)


def test_jobs_go_on_where_the_plan_has_an_alternative() -> None:
    jobs, log, _ = run(ticker(a=2, b=3), lambda name, n: "lost" if name == "a" else "")
    assert len(lost(log)) == 1 and not back(log)
    assert [j.outcome for j in jobs] == ["failed"] + ["met"] * 99
    assert {j.last_processor.name for j in jobs[1:] if j.last_processor} == {"b"}


def test_nan_may_be_meant() -> None:
    jobs, log, _ = run(ticker(a=2), lambda *_: "nan", check_outputs=False)
    assert {j.outcome for j in jobs} == {"met"} and not lost(log)


def test_a_thousand_random_fault_runs_lose_no_job_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processors, three tasks, faults of every kind in bursts: each job ends once, logs replay, no thread is left."""
    monkeypatch.setattr(health_module, "FIRST_PROBE_NS", 10 * MS)  # so that they come back within a run
    monkeypatch.setattr(engine_module, "_quiet_interpreter", nullcontext)  # a full collection for each of them takes a minute
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        rng = random.Random(seed)
        tasks = parse_workload(
            toml(
                {"name": "x", "period_ms": 8, "latency_ms": {"a": 2, "b": 3}, "segments": 2, "criticality": "high"},
                {"name": "y", "after": "x", "latency_ms": {rng.choice("ab"): 2}},
                {"name": "z", "period_ms": 20, "latency_ms": {"b": 4}, "deadline_ms": rng.choice([15, 400])},
            )
        )
        bursts = [(rng.choice("ab"), rng.randrange(12), rng.randint(1, 6), rng.choice(["raise", "lost", "nan", "stall", "hang"]))
                  for _ in range(rng.randint(1, 3))]  # fmt: skip

        def fault(name: str, n: int, bursts: list[tuple[str, int, int, str]] = bursts) -> str:
            return next((kind for where, first, length, kind in bursts if where == name and first <= n < first + length), "")

        jobs, log, released = run(tasks, fault, seconds=0.1)
        assert Counter(j.task.name for j in jobs) == released
        assert len({(j.task.name, j.index) for j in jobs}) == len(jobs)
        assert all((j.cause == "") == (j.outcome == "met") for j in jobs)
        seen.update(j.outcome for j in jobs)
        seen["lost"] += len(lost(log))
        seen["back"] += len(back(log))
        seen["hang"] += sum(j.cause.startswith("hang") for j in jobs)
    assert min(seen[k] for k in ("met", "failed", "dropped", "lost", "back", "hang")) > 20, seen


def test_pause_doubles_to_its_limit_and_is_short_again_after_steady_service() -> None:
    health = Health()
    for _ in range(20):
        health.probe_failed()
    assert health.pause_ns == LONGEST_PROBE_NS
    health.back()
    for _ in range(3):
        health.good_run()
    assert health.pause_ns == FIRST_PROBE_NS
    assert health.fault(DeviceLost("gone"))
    assert [Health().fault(DeviceError("once"))] == [False]


class _Gives:
    placement = None

    def __init__(self, value: float):
        self._value = value

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": np.array([self._value, 1.0], np.float32)}


def test_probe_compares_with_the_first_good_run() -> None:
    samples = Samples()
    samples.keep(("t", "s"), {}, _Gives(0.0).run({}))
    assert samples.probe(("t", "s"), _Gives(0.001), {})
    assert not samples.probe(("t", "s"), _Gives(0.5), {})
    assert not samples.probe(("t", "s"), _Gives(np.nan), {})


def test_nan_is_found_in_floats_only() -> None:
    tensors = {"i": np.zeros(2, np.int64), "f": np.array([1, np.inf], np.float16), "bad": np.array([0, np.nan])}
    assert nan_in(tensors, ("i", "f", "absent")) is None
    assert nan_in(tensors, tensors) == "bad"


def test_terminated_run_of_onnx_runtime_raises_and_the_next_does_not(bundles: dict[str, Bundle]) -> None:
    bundle = bundles["scale"]
    provider = CpuProvider()
    step = Step(bundle.manifest.whole.name, 0, bundle.manifest.segments, "cpu0", Latency.constant(1))
    session: Any = provider.load(bundle, step, provider.discover(usable_cores())[0])
    feeds = {"x": np.zeros((2, 3), np.float32)}
    cut = session.begin()
    cut.terminate()
    with pytest.raises(DeviceError, match="terminate"):
        cut.run(feeds)
    assert session.begin().run(feeds)["y"].shape == (2, 3)
