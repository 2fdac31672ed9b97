"""Plans for tasks that state their latencies (`latency_ms`) instead of a model: nothing to measure, nothing to search."""

from __future__ import annotations

from collections.abc import Sequence

from edgeengine.errors import UserError
from edgeengine.spec import Latency, Plan, Processor, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload


def task_from_latencies(task: Task) -> TaskPlan:
    """`segments` equal parts, each on every processor named."""
    steps = tuple(
        Step(f"s{i}_{i + 1}", i, i + 1, processor, Latency.constant(round(ms * 1e6 / task.segments)))
        for i in range(task.segments)
        for processor, ms in task.latency_ms.items()
    )
    return TaskPlan(task=task.name, bundle="", segments=task.segments, steps=steps, basis="stated")


def plan_from_latencies(workload: Workload, processors: tuple[Processor, ...] | None = None) -> Plan:
    """A plan without measurement. Processors are those given, else one independent processor per name in `latency_ms`.

    Raises UserError for a task without `latency_ms`, or one that names a processor that is not among those given.
    """
    names = dict.fromkeys(name for task in workload.tasks for name in task.latency_ms)
    if processors is None:
        processors = tuple(Processor(name=n, kind=_kind(n), provider="simulated", resources=(n,)) for n in names)
    for task in workload.tasks:
        if not task.latency_ms:
            raise UserError(f"task {task.name!r} has a model but no latency_ms: nothing to plan it from; give latency_ms")
        check_names(task, [p.name for p in processors])
    tasks = tuple(task_from_latencies(t) for t in workload.tasks)
    return Plan(schema=SCHEMA, device="described", workload=workload.sha256, processors=processors, tasks=tasks)


def check_names(task: Task, known: Sequence[str]) -> None:
    """Raises UserError for a stated latency on a processor that is not among those known."""
    for name in task.latency_ms:
        if name not in known:
            raise UserError(f"task {task.name!r}, latency_ms: no processor {name!r}; known: {', '.join(sorted(known))}")


def _kind(name: str) -> str:
    return next((kind for kind in ("npu", "gpu") if kind in name.lower()), "cpu")
