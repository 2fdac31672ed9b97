"""Plans for described devices, from expectations made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.effects import effects_of
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.planning.described import plan_on_device
from edgeengine.planning.estimates import from_macs, published_on_device
from edgeengine.profiling.described import Expected
from edgeengine.spec import Plan, SubgraphSpec
from edgeengine.spec.device import DeviceProfile, Figure, LinkProfile, ProcessorProfile, Speed
from edgeengine.workload import Workload, revised
from edgeengine.workload.published import published
from tests.builders import workload

MS = 1e6


def figure(value: float, unit: str, low: float | None = None, high: float | None = None) -> Figure:
    return Figure(value, unit, "made up", "guessed", low, high)


def speed(overhead: float, rate: float) -> Speed:
    return Speed(
        "none", overhead=figure(overhead, "ms", overhead / 2, overhead * 2), rate=figure(rate, "GMAC/s", rate / 2, rate * 2)
    )


DEVICE = DeviceProfile(
    description="made up",
    chip="none",
    name="acme/board",
    processor=(
        ProcessorProfile("cpu", "cpu", ("core0", "core1"), "cores", each=True, speed={"float": speed(1.0, 10.0)}),
        ProcessorProfile("npu", "npu", ("npu",), "an NPU", memory="npu", speed={"float": speed(0.5, 100.0)}),
    ),
    link=(LinkProfile("host", "npu", figure(0.25, "ms"), figure(1.0, "GB/s")),),
)
Table = dict[tuple[str, str], float]  # milliseconds by (subgraph, processor)


def expecting(table: Table, otherwise: float | str) -> Callable[[Bundle, SubgraphSpec, ProcessorProfile], Expected | str]:
    def expect(bundle: Bundle, subgraph: SubgraphSpec, processor: ProcessorProfile) -> Expected | str:
        ms = table.get((subgraph.name, processor.name), otherwise)
        return ms if isinstance(ms, str) else Expected(ms * MS, ms * MS / 2, ms * MS * 3, "predicted")

    return expect


@pytest.fixture
def tasks(bundles: dict[str, Bundle]) -> Workload:
    return workload({"name": "t", "model": str(bundles["scale"].path), "period_ms": 50})


def test_chain_that_changes_memories_pays_for_each_boundary(tasks: Workload, bundles: dict[str, Bundle]) -> None:
    """x and the boundaries are 2 x 3 floats: s0_1 is fast on the NPU, s1_2 on the CPU, s2_3 on the NPU again."""
    fast = {("s0_1", "npu"): 1.0, ("s1_2", "cpu"): 1.0, ("s2_3", "npu"): 1.0}
    plan, rows = plan_on_device(tasks, {"t": bundles["scale"]}, DEVICE, {"t": expecting(fast, 50.0)})
    (made,) = plan.tasks
    transfer_ns = effects_of(DEVICE).transfer_ns("host", "npu", 24)
    assert transfer_ns == 250_024
    assert made.measured_ns == 3_000_000 + 2 * transfer_ns
    carried = {s.start: s.input_bytes for s in made.steps}
    assert carried == {0: 0, 1: 24, 2: 24} and all(s.output_bytes == 0 for s in made.steps)
    assert {r.ended for r in rows} == {made.basis} == {"predicted"}
    assert all(s.bounds == (0.5, 3.0) for s in made.steps)
    assert plan.device == "acme/board" and plan.effects == effects_of(DEVICE)


def test_transfers_that_cost_more_than_they_gain_keep_a_model_whole(tasks: Workload, bundles: dict[str, Bundle]) -> None:
    fast = {("s0_1", "npu"): 1.0, ("s1_2", "cpu"): 1.0, ("s2_3", "npu"): 1.0, ("s0_3", "cpu"): 3.4}
    plan, _ = plan_on_device(tasks, {"t": bundles["scale"]}, DEVICE, {"t": expecting(fast, 50.0)})
    assert {s.subgraph for s in plan.tasks[0].steps} == {"s0_3"}
    assert {s.processor for s in plan.tasks[0].steps} == {"cpu0", "cpu1", "npu"}


def test_parts_that_nobody_runs_make_it_infeasible_with_every_reason(tasks: Workload, bundles: dict[str, Bundle]) -> None:
    only_ends = {("s0_1", "npu"): 1.0, ("s2_3", "npu"): 1.0}
    with pytest.raises(PlanInfeasible, match=r"acme/board: task 't' can run nowhere: cpu: no Loop; npu: no Loop"):
        plan_on_device(tasks, {"t": bundles["scale"]}, DEVICE, {"t": expecting(only_ends, "no Loop")})


def test_stated_tasks_go_beside_models_if_their_processors_exist(bundles: dict[str, Bundle]) -> None:
    model = {"name": "t", "model": str(bundles["scale"].path), "period_ms": 50}
    both = workload(model, {"name": "s", "period_ms": 20, "latency_ms": {"cpu1": 2}})
    given = {"t": bundles["scale"], "s": None}
    plan, _ = plan_on_device(both, given, DEVICE, {"t": expecting({}, 5.0)})
    assert [t.basis for t in plan.tasks] == ["predicted", "stated"]
    wrong = workload(model, {"name": "s", "period_ms": 20, "latency_ms": {"gpu": 2}})
    with pytest.raises(UserError, match="no processor 'gpu'; known: cpu0, cpu1, npu"):
        plan_on_device(wrong, given, DEVICE, {"t": expecting({}, 5.0)})


def test_line_is_overhead_plus_macs_over_rate_and_so_are_its_bounds() -> None:
    found = from_macs(2e9, speed(1.0, 10.0))
    assert (found.median_ns, found.low_ns, found.high_ns) == (201 * MS, 100.5 * MS, 402 * MS)


def on_the_board(name: str, rate: float = 1.0) -> tuple[Workload, Plan]:
    ready = published(name)
    assert ready is not None
    given = ready.workload()
    faster = {t.name: {"period_ms": t.period_ms / rate} for t in given.tasks if t.period_ms is not None}
    return published_on_device(revised(given, faster) if rate != 1 else given, ready, DEVICE)


@pytest.mark.parametrize("name", ["xr:vr_gaming", "disb:A", "disb:E", "band:sample", "band:heat"])
def test_published_workloads_have_the_lines_of_the_device(name: str) -> None:
    made, plan = on_the_board(name)
    ready = published(name)
    assert ready is not None and len(plan.tasks) == len(made.tasks)
    for task in plan.tasks:
        macs = ready.mega_macs(task.task)
        by_processor = {s.processor: s.latency.p50_ns / MS for s in task.steps}
        assert by_processor == pytest.approx({"cpu0": 1 + macs / 10, "cpu1": 1 + macs / 10, "npu": 0.5 + macs / 100}, rel=1e-6)
        stated = made.task(task.task)
        assert stated.latency_ms == pytest.approx(by_processor, rel=1e-6) and task.basis == "estimated"
        assert isinstance(stated.energy_mj, dict) and stated.energy_mj.keys() == by_processor.keys()  # none of another device


def test_published_workloads_on_a_device_keep_the_rates_asked_for() -> None:
    made, _ = on_the_board("band:sample", 2.0)
    assert {t.period_ms for t in made.tasks} == {15}


def test_operators_that_no_npu_takes_keep_a_published_model_off_it() -> None:
    assert {s.processor for s in on_the_board("xr:ar_assistant")[1].task("PD").steps} == {"cpu0", "cpu1"}
