"""The twin: the live engine's threads, on a virtual clock with the null provider, decide byte for byte as the simulator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeengine.devices.providers.null import NullProvider
from edgeengine.engine import Engine
from edgeengine.events import AnyAction, Hold, LogLine, Time, Wake, dump_log
from edgeengine.planning.admission import admit
from edgeengine.scheduling import make_policy
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Plan
from edgeengine.testing import VirtualClock
from edgeengine.workload import Workload, parse_workload
from tests.builders import MS, PROCESSORS, plan, processor, toml, with_bundles, workload, workloads
from tests.scheduling.driver import replay


def live_log(tasks: Workload, planned: Plan, policy: Any, seconds: float, seed: int = 0) -> tuple[list[LogLine], list[Any]]:
    tasks, planned, bundles = with_bundles(tasks, planned)
    clock = VirtualClock()
    with Engine(
        tasks, planned, policy=policy, seconds=seconds, seed=seed, bundles=bundles, clock=clock,
        providers={"null": NullProvider(clock, planned.processors)}, keep_jobs=True, keep_log=True,
    ) as engine:  # fmt: skip
        engine.wait()
        return engine.log, engine.jobs


def _until_over(log: list[LogLine]) -> list[LogLine]:
    """Without the wake-ups still due when the last job has ended: nobody waits for them."""
    while log and isinstance(log[-1].event, Time):
        log = log[:-1]
    return log


def assert_twins(tasks: Workload, planned: Plan, policy: Any, seconds: float, seed: int = 0) -> None:
    log, jobs = live_log(tasks, planned, policy(), seconds, seed)
    simulated = simulate(tasks, planned, policy(), Median(), stop_ns=round(seconds * 1e9), seed=seed, keep_log=True)
    assert dump_log(_until_over(log)) == dump_log(_until_over(simulated.log or []))
    key = [(j.task.name, j.index, j.outcome, j.cause, j.release_ns, j.deadline_ns, j.start_ns, j.finish_ns) for j in jobs]
    assert key == [
        (j.task.name, j.index, j.outcome, j.cause, j.release_ns, j.deadline_ns, j.start_ns, j.finish_ns) for j in simulated.jobs
    ]


SCENES = {
    "one task": [{"name": "t", "period_ms": 5, "latency_ms": {"a": 2}}],
    "shared cores": [
        {"name": "x", "period_ms": 7, "latency_ms": {"a": 3, "b": 3, "both": 2}, "segments": 2},
        {"name": "y", "rate_hz": 30, "latency_ms": {"both": 9, "emulated": 12}, "segments": 3, "criticality": "high"},
        {"name": "z", "period_ms": 11, "latency_ms": {"npu": 4, "b": 8}},
    ],
    "children": [
        {"name": "p", "period_ms": 10, "latency_ms": {"a": 2, "b": 3}, "segments": 2},
        {"name": "c", "after": "p", "latency_ms": {"b": 4}, "probability": 0.5},
        {"name": "own", "after": "p", "period_ms": 10, "latency_ms": {"npu": 5}},
        {"name": "grandchild", "after": "c", "latency_ms": {"a": 1}},
    ],
    "state, training, stale, poisson": [
        {"name": "state", "period_ms": 4, "carry": {"new": "state"}, "latency_ms": {"a": 3, "b": 3}, "segments": 2},
        {"name": "train", "kind": "train", "latency_ms": {"b": 6, "npu": 6}, "segments": 3},
        {"name": "latest", "rate_hz": 90, "stale": "latest", "latency_ms": {"npu": 14}},
        {
            "name": "queue",
            "arrivals": {"poisson": 200, "seed": 4},
            "stale": "queue:2",
            "latency_ms": {"both": 6},
            "deadline_ms": 30,
        },
    ],
}


@pytest.mark.parametrize("policy", ["edf", "fifo"])
@pytest.mark.parametrize("scene", SCENES)
def test_live_and_simulated_logs_are_equal_bytes(scene: str, policy: str) -> None:
    tasks = parse_workload(toml(*SCENES[scene]))
    assert_twins(tasks, plan(tasks, PROCESSORS), lambda: make_policy(policy), 0.4, seed=3)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(tasks=workloads(released=True), policy=st.sampled_from(["edf", "fifo"]), seed=st.integers(0, 2))
def test_live_and_simulated_logs_are_equal_for_any_workload(tasks: Workload, policy: str, seed: int) -> None:
    assert_twins(tasks, plan(tasks, PROCESSORS), lambda: make_policy(policy), 0.1, seed)


class Pausing(Edf):
    """Holds each processor for a while after every third decision, and asks to be woken in between."""

    name = "pausing"

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0

    def decide(self, view: Any, now: int) -> list[AnyAction]:
        self._calls += 1
        if self._calls % 3 == 0:
            return [Hold(p.name, now + 3 * MS) for p in view.free(now)] + [Wake(now), Wake(now + 1 * MS)]
        return super().decide(view, now)


def test_live_and_simulated_logs_are_equal_when_a_policy_waits() -> None:
    tasks = workload(
        {"name": "x", "period_ms": 5, "latency_ms": {"a": 2, "b": 3}}, {"name": "y", "rate_hz": 60, "latency_ms": {"a": 4}}
    )
    assert_twins(tasks, plan(tasks, (processor("a"), processor("b"))), Pausing, 0.3)


@pytest.mark.parametrize("policy", ["edf", "price"])
def test_live_and_simulated_logs_are_equal_under_a_timetable(policy: str) -> None:
    tasks = workload(
        {"name": "quick", "period_ms": 10, "latency_ms": {"p": 3}},
        {"name": "long", "period_ms": 20, "latency_ms": {"p": 8}},
        {"name": "train", "kind": "train", "latency_ms": {"p": 0.5}},
    )
    admitted = admit(tasks, plan(tasks, (processor("p"),)), margin=1.0)
    assert admitted.timetable is not None
    assert_twins(tasks, admitted, lambda: make_policy(policy), 0.2)


def test_log_of_a_live_run_replays_in_a_fresh_scheduler() -> None:
    tasks = parse_workload(toml(*SCENES["state, training, stale, poisson"]))
    planned = plan(tasks, PROCESSORS)
    named, with_models, bundles = with_bundles(tasks, planned)
    clock = VirtualClock()
    with Engine(
        named,
        with_models,
        seconds=0.3,
        bundles=bundles,
        clock=clock,
        providers={"null": NullProvider(clock, PROCESSORS)},
        keep_log=True,
    ) as engine:
        engine.wait()
        log = engine.log
    assert replay(named, with_models, make_policy("edf"), log) == [line.actions for line in log]
