"""From measured candidates to the plan of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeengine.bundle import Bundle
from edgeengine.errors import PlanInfeasible
from edgeengine.planning.blocking import Tolerance, blocked, rank, tolerance
from edgeengine.planning.mapper import MeasureChains, map_task
from edgeengine.profiling import Candidate
from edgeengine.spec import Latency, Processor, Step, TaskPlan
from edgeengine.workload import Task

Latencies = dict[tuple[str, str], Latency]  # by (subgraph, processor)


@dataclass(frozen=True)
class TaskInput:
    """A task to plan: its bundle, the measured latency of each candidate, and what sessions of it take in memory."""

    task: Task
    bundle: Bundle
    latency: Latencies
    resident_bytes: dict[tuple[str, str], int | None]
    measure: MeasureChains


def make_plan(tasks: Sequence[TaskInput], processors: Sequence[Processor]) -> list[TaskPlan]:
    """Map each task; what would block a more critical one too long is left out of its search.

    Raises PlanInfeasible naming the task that no processor can run.
    """
    usable = [p for p in processors if p.usable]
    tolerances = [t for i in tasks if (t := tolerance(i.task, _whole(i), usable)) is not None]
    return [_plan_task(i, usable, tolerances) for i in tasks]


def _whole(task: TaskInput) -> dict[str, Latency]:
    name = task.bundle.manifest.whole.name
    return {processor: lat for (subgraph, processor), lat in task.latency.items() if subgraph == name}


def _plan_task(given: TaskInput, usable: Sequence[Processor], tolerances: Sequence[Tolerance]) -> TaskPlan:
    manifest = given.bundle.manifest
    classes = equivalent(usable)
    candidates = [
        Candidate(given.bundle, s, group[0])
        for group in classes
        for s in manifest.subgraphs
        if (s.name, group[0].name) in given.latency
    ]
    own_rank = rank(given.task)

    def victim(c: Candidate) -> str:
        return blocked(own_rank, c.processor, given.latency[c.subgraph.name, c.processor.name].p99_ns, tolerances)

    harmless = [c for c in candidates if not victim(c)]
    reason = "no admission test ran"
    try:
        mapping = map_task(harmless, given.latency, manifest.segments, given.measure)
    except PlanInfeasible:
        try:
            mapping = map_task(candidates, given.latency, manifest.segments, given.measure)
        except PlanInfeasible as e:
            raise PlanInfeasible(f"task {given.task.name!r}: {e}") from e
        late = next(v for c in mapping.chain if (v := victim(c)))
        reason = f"may make {late!r} late: cut the model into shorter parts ('edgeengine build --parts N')"
    allowed = {(c.subgraph.name, c.processor.name) for c in harmless} | {
        (c.subgraph.name, c.processor.name) for c in mapping.chain
    }
    steps = tuple(_steps(mapping.chain, classes, given.latency, allowed))
    resident = [given.resident_bytes.get((c.subgraph.name, c.processor.name)) for c in mapping.chain]
    return TaskPlan(
        task=given.task.name,
        bundle=given.bundle.hash,
        segments=manifest.segments,
        steps=steps,
        measured_ns=mapping.measured_ns,
        whole_ns=mapping.whole_ns,
        whole_processor=mapping.whole_processor,
        resident_bytes=None if None in resident else sum(r for r in resident if r is not None),
        reason=reason,
    )


def equivalent(processors: Sequence[Processor]) -> list[list[Processor]]:
    """Processors that differ only in which unit they hold (core 0, core 1): measured apart, mapped as one."""
    groups: dict[tuple[object, ...], list[Processor]] = {}
    for p in processors:
        groups.setdefault((p.provider, p.kind, p.threads, p.emulated), []).append(p)
    return list(groups.values())


def _steps(
    chain: Sequence[Candidate], classes: list[list[Processor]], latency: Latencies, allowed: set[tuple[str, str]]
) -> list[Step]:
    """Each subgraph of the chain on its own processor and its equivalents, then on every other one it may use.

    A chain that is fastest on all cores must not wait for all of them while one stands idle.
    """
    steps = []
    for c in chain:
        own_class_first = sorted(classes, key=lambda group: c.processor not in group)
        for group in own_class_first:
            for p in group:
                if (c.subgraph.name, group[0].name) in allowed and (c.subgraph.name, p.name) in latency:
                    expected = latency[c.subgraph.name, p.name]
                    steps.append(Step(c.subgraph.name, c.subgraph.start, c.subgraph.stop, p.name, expected))
    return steps
