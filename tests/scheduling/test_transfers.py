"""Policies count what moving tensors costs: what they expect of a job alone is what the simulator then charges."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.scheduling import Scheduler, make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Effects, Link, Plan, Processor
from edgeengine.workload import Workload
from tests.builders import MS, plan, processor, workload

PROCESSORS = (processor("cpu"), processor("gpu", memory="vram"), processor("npu", memory="sram"))


def linked(tasks: Workload, nbytes: dict[tuple[str, int], int], rates: tuple[float, float], at: tuple[Processor, ...]) -> Plan:
    """The workload's plan: so many bytes enter a task's segment, one more than entered its last leaves; links of these rates."""
    made = plan(tasks, at)
    planned = []
    for t in made.tasks:
        steps = tuple(
            msgspec.structs.replace(s, input_bytes=nbytes[t.task, s.start], output_bytes=nbytes[t.task, s.start] + 1)
            for s in t.steps
        )
        planned.append(msgspec.structs.replace(t, steps=steps))
    links = (
        Link("host", "vram", 50_000, rates[0]),
        Link("host", "sram", 20_000, rates[1]),
        Link("vram", "sram", 70_000, rates[1]),
    )
    return msgspec.structs.replace(made, tasks=tuple(planned), effects=Effects(links=links))


@st.composite
def alone(draw: st.DrawFn) -> tuple[Workload, Plan]:
    """A chain on three processors, each segment on each."""
    segments = draw(st.integers(1, 5))
    latency = {p.name: draw(st.integers(1, 20)) for p in PROCESSORS}
    tasks = workload({"name": "t", "period_ms": 1000, "segments": segments, "latency_ms": latency})
    nbytes = {("t", i): draw(st.integers(1, 4_000_000)) for i in range(segments)}
    rates = draw(st.floats(1e8, 1e10)), draw(st.floats(1e8, 1e10))
    return tasks, linked(tasks, nbytes, rates, PROCESSORS)


@given(alone(), st.sampled_from(["edf", "fifo"]))
def test_a_job_alone_takes_what_was_expected_of_it(made: tuple[Workload, Plan], policy: str) -> None:
    tasks, planned = made
    expected_ns = Scheduler(tasks, planned, make_policy(policy)).tasks["t"].best_ns[0]
    (job,) = simulate(tasks, planned, make_policy(policy), Median(), stop_ns=MS).jobs
    assert job.finish_ns is not None and job.finish_ns - job.release_ns == expected_ns


@pytest.mark.parametrize("policy", ["edf", "price"])
def test_the_faster_processor_is_left_alone_where_getting_there_takes_longer(policy: str) -> None:
    tasks = workload({"name": "t", "period_ms": 50, "latency_ms": {"cpu": 10, "gpu": 8}})
    far = linked(tasks, {("t", 0): 1_000_000}, (2e8, 1e9), PROCESSORS[:2])  # 5 ms there, 5 ms back
    near = linked(tasks, {("t", 0): 1_000}, (2e8, 1e9), PROCESSORS[:2])
    for planned, name in ((far, "cpu"), (near, "gpu")):
        done = simulate(tasks, planned, make_policy(policy), Median(), stop_ns=500 * MS)
        assert {j.last_processor.name for j in done.jobs if j.last_processor is not None} == {name}


def test_transfers_are_not_taken_for_a_processor_that_has_become_slow() -> None:
    """Runs that take what was expected change no estimate, moved tensors or not."""
    tasks = workload({"name": "t", "period_ms": 50, "segments": 2, "latency_ms": {"gpu": 4}})
    planned = linked(tasks, {("t", 0): 1_000_000, ("t", 1): 1_000_000}, (2e8, 1e9), PROCESSORS[:2])
    done = simulate(tasks, planned, make_policy("edf"), Median(), stop_ns=5_000 * MS, keep_log=True)
    assert not [line for line in done.log or [] if type(line.event).__name__ == "EstimateChanged"]
