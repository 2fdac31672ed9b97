"""What slows a device: company on the memory, heat, tensors that travel."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.devices import load_profile
from edgeengine.devices.effects import effects_of, spread
from edgeengine.errors import UserError
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, Simulation, simulate
from edgeengine.simulation.contention import Contention
from edgeengine.simulation.throttling import Throttling
from edgeengine.spec import Effects, Link, Plan, Throttle
from edgeengine.spec.device import Figure, Tail
from edgeengine.workload import Workload
from tests.builders import MS, plan, processor, workload

SECOND = 1_000_000_000


def with_effects(tasks: Workload, **effects: Any) -> Plan:
    return msgspec.structs.replace(plan(tasks), effects=Effects(**effects))


def run(tasks: Workload, planned: Plan, seconds: float = 1.0) -> Simulation:
    return simulate(tasks, planned, make_policy("edf"), Median(), stop_ns=round(seconds * SECOND), keep_log=True)


def latencies(done: Simulation, name: str) -> list[float]:
    return [((j.finish_ns or 0) - j.release_ns) / MS for j in done.jobs if j.task.name == name]


TWO = workload(
    {"name": "short", "latency_ms": {"a": 4}, "period_ms": 100},
    {"name": "long", "latency_ms": {"b": 10}, "period_ms": 100},
)


def test_a_run_is_slowed_just_as_long_as_it_has_company() -> None:
    """4 ms at half speed take 8; meanwhile the other did 8 / 1.25 = 6.4 of its 10, and does the rest alone."""
    done = run(TWO, with_effects(TWO, slowdown={"a": {"b": 2.0}, "b": {"a": 1.25}}))
    assert latencies(done, "short") == pytest.approx([8.0] * 10)
    assert latencies(done, "long") == pytest.approx([8 + 3.6] * 10)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=6), st.floats(1, 3))
def test_company_never_speeds_up_and_no_work_is_lost(runs: list[tuple[int, int]], factor: float) -> None:
    """One run on each processor, all slowing each other alike: each ends after its own length, the last after at most the sum of
    what each takes of the others."""
    names = [f"p{i}" for i in range(len(runs))]
    contention = Contention({n: dict.fromkeys(names, factor) for n in names})
    begins = sorted((begin, i) for i, (begin, _) in enumerate(runs))
    ends: dict[str, int] = {}
    finished: dict[str, int] = {}
    while begins or ends:
        soonest = min(ends, key=ends.__getitem__) if ends else None
        if begins and (soonest is None or begins[0][0] * MS <= ends[soonest]):
            at, i = begins.pop(0)
            ends = contention.begin(names[i], at * MS, runs[i][1] * MS)
        else:
            assert soonest is not None
            finished[soonest] = ends[soonest]
            ends = contention.end(soonest, ends[soonest])
    for i, (begin, length) in enumerate(runs):
        took = finished[names[i]] - begin * MS
        assert length * MS - 2 * len(runs) <= took <= length * MS * (1 + (factor - 1) * (len(runs) - 1)) + 2 * len(runs)


def test_heat_slows_a_busy_processor_and_rest_cures_it() -> None:
    heat = Throttling({"p": Throttle(tau_s=60, sustained=0.5, slowest=2.0)})
    assert heat.factor("p", 0) == 1.0
    heat.ran("p", 30 * SECOND)
    assert heat.factor("p", 30 * SECOND) == 1.0  # 1 - exp(-1/2) = 0.39 is still sustainable
    heat.ran("p", 120 * SECOND)
    load = 1 - math.exp(-2)
    assert heat.factor("p", 120 * SECOND) == pytest.approx(1 + (load - 0.5) / 0.5)
    assert heat.factor("p", 120 * SECOND + round(60 * math.log(load / 0.5) * SECOND) + 1) == 1.0
    assert heat.factor("other", 0) == 1.0


def test_a_device_that_keeps_up_cold_falls_behind_hot() -> None:
    tasks = workload({"name": "t", "latency_ms": {"p": 8}, "period_ms": 10})
    hot = run(tasks, with_effects(tasks, throttle={"p": Throttle(tau_s=5, sustained=0.6, slowest=1.6)}), 60)
    early, late = hot.jobs[:200], hot.jobs[-2000:]
    assert all(j.outcome == "met" for j in early)
    assert sum(j.outcome != "met" for j in late) > 100
    assert all(j.outcome == "met" for j in run(tasks, plan(tasks), 60).jobs)


def test_tensors_travel_only_between_memories() -> None:
    """Input to the device 1 + 2 ms, its middle stays there, the result back 1 + 1 ms."""
    tasks = workload({"name": "t", "latency_ms": {"gpu": 2}, "period_ms": 100, "segments": 2})
    made = plan(tasks, (processor("gpu", memory="vram"),))
    (planned,) = made.tasks
    sized = tuple(msgspec.structs.replace(s, input_bytes=2_000_000, output_bytes=1_000_000) for s in planned.steps)
    effects = Effects(links=(Link("host", "vram", MS, 1e9),))
    made = msgspec.structs.replace(made, tasks=(msgspec.structs.replace(planned, steps=sized),), effects=effects)
    assert latencies(run(tasks, made), "t") == pytest.approx([2 + 3 + 2] * 10)
    here = msgspec.structs.replace(made, processors=(processor("gpu"),))
    assert latencies(run(tasks, here), "t") == pytest.approx([2.0] * 10)


def test_effects_that_do_nothing_change_nothing() -> None:
    plain, neutral = run(TWO, plan(TWO)), run(TWO, with_effects(TWO, slowdown={"a": {"b": 1.0}}))
    assert plain.log == neutral.log


def test_first_run_of_each_subgraph_on_each_processor_is_longer() -> None:
    tasks = workload({"name": "t", "latency_ms": {"a": 4}, "period_ms": 100, "segments": 2})
    done = run(tasks, with_effects(tasks, first_run={"a": 7.0}))
    assert latencies(done, "t") == [28.0] + [4.0] * 9


def test_device_profile_says_what_effects_there_are() -> None:
    pi = effects_of(load_profile("pi4"))
    assert pi.slowdown["cpu0"].keys() == {"cpu1", "cpu2", "cpu3", "gpu"} and pi.slowdown["cpu-all"].keys() == {"gpu"}
    assert pi.first_run["cpu0"] == 4.6 and not pi.throttle
    phone = load_profile("snapdragon-8-gen-3")
    effects = effects_of(phone)
    assert effects.throttle.keys() == {p.name for p in phone.processors}
    assert effects.transfer_ns("host", "npu", 10**6) > effects.transfer_ns("host", "npu", 0) > 0


def test_mode_slows_and_switches_off() -> None:
    nano, slow = load_profile("jetson-nano"), load_profile("jetson-nano:5w")
    assert {p.name for p in slow.processors} == {"cpu0", "cpu1", "gpu"} < {p.name for p in nano.processors}
    before, after = (next(p for p in d.processor if p.name == "gpu").speed["float"] for d in (nano, slow))
    assert before.rate and after.rate and before.overhead and after.overhead
    assert after.rate.value == pytest.approx(before.rate.value / 1.44)
    assert after.overhead.value == pytest.approx(before.overhead.value * 1.44)
    with pytest.raises(UserError, match="has no mode '6w'; it has 5w"):
        load_profile("jetson-nano:6w")


@given(st.integers(1000, 10**6), st.floats(1.01, 50), st.integers(100_000, 10**9))
def test_spread_has_the_quantiles_of_the_tail_and_rises(runs: int, most: float, median_ns: int) -> None:
    def figure(value: float) -> Figure:
        return Figure(value, "times", "made up", "guessed")

    tail = Tail(figure(0.9), figure(1.005), figure(1.01), figure(most), figure(runs))
    latency = spread(median_ns, tail)
    values = [latency.at(p) for p in (0, 10, 50, 90, 99, 99.5, 99.9, 99.99, 100 * (1 - 1 / runs), 100)]
    assert latency.p50_ns == median_ns and latency.max_ns == round(median_ns * most)
    assert values[:-2] == sorted(values[:-2])
    assert latency.at(100 * (1 - 1 / runs)) == pytest.approx(latency.max_ns, rel=0.01, abs=2)
