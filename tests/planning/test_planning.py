"""Mapping by measurement, blocking, and plans as files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.planning import Mapping, TaskInput, load_plan, make_plan, map_task
from edgeengine.planning.mapper import WORTH_CUTTING
from edgeengine.planning.plan import NO_ADMISSION
from edgeengine.profiling import Candidate, candidates_of, equivalent
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Latency, Processor, SubgraphSpec, TaskPlan
from tests.builders import MS, bare_bundle, plan, processor, workload

Table = dict[tuple[str, str], Latency]
CPU0, CPU1, ALL = CpuProvider().discover((0, 1))
NPU = processor("npu")


def bundle(segments: int) -> Bundle:
    """With every candidate subgraph there can be."""
    bare = bare_bundle("m", segments)
    subgraphs = tuple(
        SubgraphSpec(f"s{a}_{b}", f"s{a}_{b}.onnx", a, b, (), (), 1) for a in range(segments) for b in range(a + 1, segments + 1)
    )
    return Bundle(bare.path, bare.hash, msgspec.structs.replace(bare.manifest, subgraphs=subgraphs))


def table(made: Bundle, processors: Sequence[Processor], ms: Callable[[SubgraphSpec, Processor], float | None]) -> Table:
    found = {}
    for c in candidates_of(made, processors):
        value = ms(c.subgraph, c.processor)
        if value is not None:
            found[c.subgraph.name, c.processor.name] = Latency.constant(round(value * MS))
    return found


def summed(latency: Table, factor: Callable[[Sequence[Candidate]], float] = lambda chain: 1.0) -> Any:
    """A measurement: the sum of the parts times what `factor` says of the chain."""

    def measure(chains: Sequence[Sequence[Candidate]]) -> list[Latency]:
        return [
            Latency.constant(round(sum(latency[c.subgraph.name, c.processor.name].p50_ns for c in chain) * factor(chain)))
            for chain in chains
        ]

    return measure


# ---- the mapper ----


@st.composite
def problems(draw: st.DrawFn) -> tuple[Bundle, list[Processor], Table, Table]:
    """A model, processors, what was measured of each candidate (some are missing), and what chains of them really take."""
    made = bundle(draw(st.integers(1, 4)))
    processors = draw(st.lists(st.sampled_from([CPU0, ALL, NPU]), min_size=1, max_size=3, unique_by=lambda p: p.name))
    seen = table(made, processors, lambda s, p: draw(st.one_of(st.none(), st.floats(0.1, 20))))
    true = {key: Latency.constant(max(round(value.p50_ns * draw(st.floats(0.5, 2))), 1)) for key, value in seen.items()}
    return made, processors, seen, true


@given(problems())
def test_chosen_chain_covers_the_model_and_is_never_slower_than_the_best_whole(
    problem: tuple[Bundle, list[Processor], Table, Table],
) -> None:
    made, processors, seen, true = problem
    n = made.manifest.segments
    candidates = [c for c in candidates_of(made, processors) if (c.subgraph.name, c.processor.name) in seen]
    try:
        mapping = map_task(candidates, seen, n, summed(true))
    except PlanInfeasible:
        reached = {0}
        for position in range(n):
            reached |= {c.subgraph.stop for c in candidates if c.subgraph.start == position and position in reached}
        assert n not in reached
        return
    assert [c.subgraph.start for c in mapping.chain] == [0, *[c.subgraph.stop for c in mapping.chain[:-1]]]
    assert mapping.chain[-1].subgraph.stop == n
    assert mapping.measured_ns == summed(true)([mapping.chain])[0].p50_ns
    wholes = [true[c.subgraph.name, c.processor.name].p50_ns for c in candidates if c.subgraph.stop - c.subgraph.start == n]
    assert mapping.whole_ns == min(wholes, default=None)
    if mapping.whole_ns is not None:
        assert mapping.measured_ns <= mapping.whole_ns
        if len(mapping.chain) > 1:
            assert mapping.measured_ns <= WORTH_CUTTING * mapping.whole_ns


def test_model_is_cut_where_parts_are_faster_elsewhere() -> None:
    made = bundle(2)
    fast = {("s0_1", "npu"): 1.0, ("s1_2", "cpu0"): 1.0}
    latency = table(made, [CPU0, NPU], lambda s, p: fast.get((s.name, p.name), 10.0 * (s.stop - s.start)))
    candidates = candidates_of(made, [CPU0, NPU])
    mapping = map_task(candidates, latency, 2, summed(latency))
    assert [(c.subgraph.name, c.processor.name) for c in mapping.chain] == [("s0_1", "npu"), ("s1_2", "cpu0")]
    assert (mapping.measured_ns, mapping.whole_ns, mapping.whole_processor) == (2 * MS, 20 * MS, "cpu0")


def test_prediction_that_does_not_hold_is_not_believed() -> None:
    """The parts promise 2 ms; run in a chain they take 30."""
    made = bundle(2)
    latency = table(made, [CPU0, NPU], lambda s, p: 1.0 if s.stop - s.start == 1 else 20.0)
    mapping = map_task(candidates_of(made, [CPU0, NPU]), latency, 2, summed(latency, lambda chain: 15 if len(chain) > 1 else 1))
    assert [c.subgraph.name for c in mapping.chain] == ["s0_2"]


def test_model_without_a_whole_that_runs_anywhere_is_cut() -> None:
    made = bundle(2)
    latency = table(made, [CPU0], lambda s, p: 1.0 if s.stop - s.start == 1 else None)
    candidates = [c for c in candidates_of(made, [CPU0]) if (c.subgraph.name, "cpu0") in latency]
    mapping = map_task(candidates, latency, 2, summed(latency))
    assert mapping == Mapping(chain=tuple(candidates), measured_ns=2 * MS, whole_ns=None, whole_processor="")


def test_only_a_few_chains_are_measured() -> None:
    made, asked = bundle(4), []
    latency = table(made, [CPU0, NPU], lambda s, p: 1.0 + s.stop - s.start)

    def measure(chains: Any) -> Any:
        asked.extend(chains)
        return summed(latency)(chains)

    map_task(candidates_of(made, [CPU0, NPU]), latency, 4, measure)
    assert len(asked) == 5  # two wholes and three more
    assert len({tuple((c.subgraph.name, c.processor.name) for c in chain) for chain in asked}) == 5


def test_a_cut_that_was_lucky_once_is_measured_again() -> None:
    made = bundle(2)
    latency = table(made, [CPU0], lambda s, p: 10.0 if s.stop - s.start == 2 else 5.0)
    calls: list[int] = []

    def measure(chains: Sequence[Sequence[Candidate]]) -> list[Latency]:
        lucky = 0.9 if not calls else 1.0
        calls.append(len(chains))
        return summed(latency, lambda chain: lucky if len(chain) > 1 else 1.0)(chains)  # type: ignore[no-any-return]

    mapping = map_task(candidates_of(made, [CPU0]), latency, 2, measure)
    assert [c.subgraph.name for c in mapping.chain] == ["s0_2"] and calls == [2, 2]
    assert mapping.measured_ns == mapping.whole_ns == 10 * MS


# ---- plans ----

CAMERA = {"name": "camera", "period_ms": 10, "criticality": "high"}


def planned(*given: tuple[dict[str, Any], Bundle, Table], processors: Sequence[Processor] = (CPU0, CPU1, ALL)) -> list[TaskPlan]:
    tasks = workload(*(keys for keys, _, _ in given))
    inputs = [
        TaskInput(t, b, lat, dict.fromkeys(lat, 1000), summed(lat)) for t, (_, b, lat) in zip(tasks.tasks, given, strict=True)
    ]
    return make_plan(inputs, processors)


def where(task: TaskPlan) -> set[str]:
    return {s.processor for s in task.steps}


def whole(ms: dict[str, float]) -> tuple[Bundle, Table]:
    made = bundle(1)
    return made, {("s0_1", name): Latency.constant(round(value * MS)) for name, value in ms.items()}


def test_background_work_leaves_the_urgent_task_a_core() -> None:
    """All cores would be fastest, and short: but a more critical job would find none free."""
    urgent = (CAMERA, *whole({"cpu0": 4, "cpu1": 4, "cpu-all": 3}))
    other = ({"name": "b", "criticality": "background"}, *whole({"cpu0": 2, "cpu1": 2, "cpu-all": 1}))
    camera, background = planned(urgent, other)
    assert where(background) == {"cpu0", "cpu1"}
    assert where(camera) == {"cpu0", "cpu1", "cpu-all"}
    assert {t.reason for t in (camera, background)} == {NO_ADMISSION}


def test_equally_critical_work_may_use_all_cores() -> None:
    _, other = planned(
        (CAMERA, *whole({"cpu0": 4, "cpu1": 4})), (CAMERA | {"name": "b"}, *whole({"cpu0": 2, "cpu1": 2, "cpu-all": 1}))
    )
    assert "cpu-all" in where(other)


def parts(segments: int, ms: float, on: str) -> tuple[Bundle, Table]:
    """On one processor, each part `ms`, longer candidates as long as their parts and a little less."""
    made = bundle(segments)
    return made, table(made, [processor(on)], lambda s, p: ms * (s.stop - s.start) * (1 - 0.01 * (s.stop - s.start - 1)))


def test_on_one_core_background_work_is_cut_short_enough() -> None:
    camera = (CAMERA, *whole({"cpu0": 4}))  # tolerates 6 ms
    _, background = planned(camera, ({"name": "b", "criticality": "background"}, *parts(3, 5, "cpu0")), processors=[CPU0])
    assert [s.subgraph for s in background.steps] == ["s0_1", "s1_2", "s2_3"]
    assert background.reason == NO_ADMISSION


def test_background_work_that_cannot_be_short_enough_runs_with_a_warning() -> None:
    camera = (CAMERA, *whole({"cpu0": 4}))
    _, background = planned(camera, ({"name": "b", "criticality": "background"}, *parts(2, 9, "cpu0")), processors=[CPU0])
    assert background.steps
    assert "camera late" in background.reason and "--parts" in background.reason


def test_cores_that_are_alike_are_planned_as_one() -> None:
    assert [[p.name for p in group] for group in equivalent([CPU0, ALL, CPU1, NPU])] == [["cpu0", "cpu1"], ["cpu-all"], ["npu"]]
    (task,) = planned((CAMERA, *whole({"cpu0": 4, "cpu1": 5})))
    assert {(s.processor, s.latency.p50_ns // MS) for s in task.steps} == {("cpu0", 4), ("cpu1", 5)}
    assert (task.measured_ns, task.whole_ns, task.whole_processor, task.resident_bytes) == (4 * MS, 4 * MS, "cpu0", 1000)


def test_unlike_cores_and_accelerators_are_planned_apart() -> None:
    """big.LITTLE; an integrated and a discrete GPU of one provider."""
    little = msgspec.structs.replace(CPU1, core_kind="1")
    gpus = [msgspec.structs.replace(processor(name), kind="gpu") for name in ("gpu", "gpu1")]
    assert [[p.name for p in group] for group in equivalent([CPU0, little, *gpus])] == [["cpu0"], ["cpu1"], ["gpu"], ["gpu1"]]


def test_steps_lead_from_start_to_end_on_each_processor() -> None:
    (task,) = planned((CAMERA, *parts(3, 2, "cpu0")), processors=[CPU0])
    position = 0
    for step in task.steps:
        assert step.start == position
        position = step.stop
    assert position == task.segments


def test_task_that_runs_nowhere_is_named() -> None:
    made = bundle(2)
    for latency in ({}, {("s0_1", "cpu0"): Latency.constant(1)}):
        with pytest.raises(PlanInfeasible, match="'camera'"):
            planned((CAMERA, made, latency))


def test_unusable_processors_are_left_out() -> None:
    broken = msgspec.structs.replace(CPU1, usable=False, reason="burnt")
    (task,) = planned((CAMERA, *whole({"cpu0": 4, "cpu1": 1})), processors=[CPU0, broken])
    assert where(task) == {"cpu0"}
    with pytest.raises(PlanInfeasible):
        planned((CAMERA, *whole({"cpu1": 1})), processors=[broken])


# ---- files ----


def test_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    made = plan(workload({"name": "t", "latency_ms": {"npu": 3, "cpu": 9}, "segments": 2}))
    (tmp_path / "p.json").write_bytes(msgspec.json.encode(made))
    assert load_plan(tmp_path / "p.json") == made
    assert made.task("t").segments == 2


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (None, "cannot read the plan"),
        (b"", "not a plan"),
        (b"\xff\xfe", "not a plan"),
        (b"[]", "not a plan"),
        (b'{"schema": 1}', "not a plan"),
        (b'{"schema": 99, "device": "d", "workload": "", "processors": [], "tasks": []}', "schema 99"),
    ],
)
def test_file_that_is_no_plan_is_named(tmp_path: Path, data: bytes | None, what: str) -> None:
    file = tmp_path / "p.json"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(UserError) as e:
        load_plan(file)
    assert what in str(e.value) and str(file) in str(e.value) and "\n" not in str(e.value)


def test_plan_of_a_newer_schema_is_named_as_such_whatever_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"schema": 99, "somewhere": "else"}')
    with pytest.raises(UserError, match="plan schema 99"):
        load_plan(tmp_path / "p.json")


def test_names_that_are_not_there_are_user_errors() -> None:
    tasks = workload({"name": "t"})
    with pytest.raises(UserError, match=r"no task 'u' .*\bt\b"):
        plan(tasks).task("u")
    with pytest.raises(UserError, match=r"no task 'u'; known: t"):
        tasks.task("u")
    with pytest.raises(UserError, match="no task 'u'"):
        simulate(workload({"name": "u", "period_ms": 5}), plan(tasks), make_policy("edf"), Median(), stop_ns=MS)
