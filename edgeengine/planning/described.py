"""Plans for a described device: as for this machine, with predicted rows in place of measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edgeengine.bundle import Bundle
from edgeengine.devices.effects import effects_of
from edgeengine.errors import PlanInfeasible
from edgeengine.planning.from_latencies import check_names, task_from_latencies
from edgeengine.planning.mapper import MeasureChains
from edgeengine.planning.plan import Latencies, TaskInput, make_plan
from edgeengine.profiling import Candidate
from edgeengine.profiling.described import Expect, bounds_of, described_rows, reasons
from edgeengine.spec import Effects, Latency, Plan, ProfileRow, Step, SubgraphSpec, TaskPlan
from edgeengine.spec.device import DeviceProfile
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload


def plan_on_device(
    workload: Workload, bundles: Mapping[str, Bundle | None], device: DeviceProfile, expect: Mapping[str, Expect]
) -> tuple[Plan, list[ProfileRow]]:
    """The plan, and the rows behind it. `bundles` and `expect` by task; those without a bundle state their latencies.

    Raises PlanInfeasible naming the task, and on each processor the operator or the figure that is in its way; UserError for a
    stated latency on a processor that is not there.
    """
    effects, processors = effects_of(device), device.processors
    rows: dict[str, list[ProfileRow]] = {}
    for task in workload.tasks:
        bundle = bundles[task.name]
        if bundle is None:
            check_names(task, [p.name for p in processors])
            continue
        rows[task.name], refused = described_rows(bundle, device, expect[task.name])
        if not _covered(bundle, rows[task.name]):
            raise PlanInfeasible(f"{device.name}: task {task.name!r} can run nowhere: {reasons(refused)}")
    inputs = [_input(t, b, rows[t.name], effects, device) for t in workload.tasks if (b := bundles[t.name]) is not None]
    made = {t.task: t for t in make_plan(inputs, processors)}
    tasks = tuple(
        _finished(made[t.name], b, rows[t.name]) if (b := bundles[t.name]) is not None else task_from_latencies(t)
        for t in workload.tasks
    )
    plan = Plan(SCHEMA, device.name, workload.sha256, processors, tasks, effects=effects)
    return plan, [r for of_task in rows.values() for r in of_task]


def _covered(bundle: Bundle, rows: Sequence[ProfileRow]) -> bool:
    """Whether the rows' subgraphs lead from the model's inputs to its outputs."""
    runnable = {r.subgraph for r in rows}
    reached = {0}
    for s in sorted(bundle.manifest.subgraphs, key=lambda s: s.start):
        if s.name in runnable and s.start in reached:
            reached.add(s.stop)
    return bundle.manifest.segments in reached


def _input(task: Task, bundle: Bundle, rows: Sequence[ProfileRow], effects: Effects, device: DeviceProfile) -> TaskInput:
    latency = {(r.subgraph, r.processor): r.latency for r in rows}
    memory = {p.name: p.memory for p in device.processors}
    return TaskInput(task=task, bundle=bundle, latency=latency, resident_bytes={}, measure=_reckoned(latency, effects, memory))


def _reckoned(latency: Latencies, effects: Effects, memory: Mapping[str, str]) -> MeasureChains:
    """In place of measuring chains: what the parts take, and the boundaries that change memories."""

    def measure(chains: Sequence[Sequence[Candidate]]) -> list[Latency]:
        return [Latency.constant(sum(cost(part, before) for part, before in zip(c, [None, *c], strict=False))) for c in chains]

    def cost(part: Candidate, before: Candidate | None) -> int:
        taken = latency[part.subgraph.name, part.processor.name].p50_ns
        if before is None:
            return taken
        return taken + effects.transfer_ns(memory[before.processor.name], memory[part.processor.name], _nbytes(part.subgraph))

    return measure


def _finished(plan: TaskPlan, bundle: Bundle, rows: Sequence[ProfileRow]) -> TaskPlan:
    """The plan with what only predictions have: bounds, and the bytes that boundaries carry.

    What a model reads first and gives last is in its latency already, as it was measured.
    """
    by_key = {(r.subgraph, r.processor): r for r in rows}
    subgraphs = {s.name: s for s in bundle.manifest.subgraphs}

    def step(s: Step) -> Step:
        carried = 0 if s.start == 0 else _nbytes(subgraphs[s.subgraph])
        return msgspec.structs.replace(s, input_bytes=carried, bounds=bounds_of(by_key[s.subgraph, s.processor]))

    basis = "estimated" if any(by_key[s.subgraph, s.processor].ended == "estimated" for s in plan.steps) else "predicted"
    return msgspec.structs.replace(plan, steps=tuple(map(step, plan.steps)), basis=basis)


def _nbytes(subgraph: SubgraphSpec) -> int:
    return sum(t.nbytes or 0 for t in subgraph.inputs)
