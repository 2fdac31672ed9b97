"""From measured candidates to the plan of a workload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeengine.bundle import Bundle
from edgeengine.errors import PlanInfeasible
from edgeengine.planning.blocking import Tolerance, tiers, tolerance
from edgeengine.planning.mapper import Mapping, MeasureChains, map_task
from edgeengine.profiling import Candidate, equivalent
from edgeengine.spec import Latency, Processor, Step, TaskPlan
from edgeengine.workload import Task

NO_ADMISSION = "no admission test ran"
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
    mapping, allowed, warning = _map(given, candidates, tolerances)
    steps = tuple(_steps(mapping.chain, classes, given.latency, {(c.subgraph.name, c.processor.name) for c in allowed}))
    too_slow = _too_slow(given.task, mapping.measured_ns)
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
        verdict="refused" if too_slow else "best effort",
        reason=too_slow or warning or NO_ADMISSION,
    )


def _map(
    given: TaskInput, candidates: Sequence[Candidate], tolerances: Sequence[Tolerance]
) -> tuple[Mapping, Sequence[Candidate], str]:
    """The mapping within the best tier of candidates that covers the model, that tier, and its warning."""
    problem = PlanInfeasible("no candidate was measured")
    for allowed, warning in tiers(given.task, candidates, given.latency, tolerances):
        try:
            return map_task(allowed, given.latency, given.bundle.manifest.segments, given.measure), allowed, warning
        except PlanInfeasible as e:
            problem = e
    raise PlanInfeasible(f"task {given.task.name!r}: {problem}") from problem


def _too_slow(task: Task, measured_ns: int) -> str:
    """The least that admission must say: a task that misses its deadline alone on the device. "" if it does not."""
    deadline_ns = task.relative_deadline_ns
    if deadline_ns is None or measured_ns <= deadline_ns:
        return ""
    return f"takes {measured_ns / 1e6:.3g} ms alone, its deadline is {deadline_ns / 1e6:.3g} ms: no job can be met"


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
