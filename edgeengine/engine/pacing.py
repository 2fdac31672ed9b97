"""A workload's chosen chains as items of the paced timeline, and a plan with what was measured there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.dataflow import DataFlow
from edgeengine.planning import equivalent
from edgeengine.profiling import Candidate, Paced, PacedItem, period_condition
from edgeengine.spec import Latency, Plan, Processor, TaskPlan
from edgeengine.workload import Task, Workload


def effective_period_ns(task: Task, workload: Workload) -> int | None:
    """The task's period, else its parent's: a follow-up runs as often."""
    while task.period_ns is None and task.after is not None:
        task = workload.task(task.after)
    return task.period_ns


def paced_items(workload: Workload, bundles: dict[str, Bundle], draft: Plan, data: DataFlow) -> list[PacedItem]:
    """The chosen chains of all periodic tasks; those of follow-ups hang on their parents. Inputs flow as they will in service."""
    paced = [t for t in workload.tasks if t.period_ns or (not t.has_pattern and effective_period_ns(t, workload))]
    position = {t.name: i for i, t in enumerate(paced)}
    items = []
    for task in paced:
        period_ns = effective_period_ns(task, workload)
        assert period_ns is not None
        items.append(
            PacedItem(
                name=task.name,
                chains=_chains(draft, draft.task(task.name), bundles[task.name]),
                inputs=partial(_gather, data, task.name, period_ns),
                outputs=partial(data.finish, task.name),
                period_ns=period_ns,
                follow_ups=tuple(position[t.name] for t in paced if t.after == task.name and not t.has_pattern),
                is_follow_up=task.after is not None and not task.has_pattern,
                urgent=task.criticality != "background",
            )
        )
    return items


def _gather(data: DataFlow, task: str, period_ns: int, index: int) -> Tensors:
    return data.tasks[task].gather(index, index * period_ns)


def _chains(draft: Plan, plan: TaskPlan, bundle: Bundle) -> list[list[Candidate]]:
    """The chain on each processor that can run all of it; else across processors, as planned."""
    by_name = {p.name: p for p in draft.processors}
    chains = []
    for name in dict.fromkeys(s.processor for s in plan.steps):
        steps = [s for s in plan.steps if s.processor == name]
        if sum(s.stop - s.start for s in steps) == plan.segments:
            chains.append([Candidate(bundle, bundle.manifest.subgraph(s.subgraph), by_name[name]) for s in steps])
    if chains:
        return chains
    first = {s.start: s for s in reversed(plan.steps)}  # the first step listed at a position is the mapper's choice
    return [[Candidate(bundle, bundle.manifest.subgraph(s.subgraph), by_name[s.processor]) for _, s in sorted(first.items())]]


def with_paced(plan: TaskPlan, workload: Workload, processors: Sequence[Processor], paced: Paced) -> TaskPlan:
    """The plan with latencies measured at the task's period wherever there are some: those hold in service.

    Samples of equivalent processors (core 0, core 1) are pooled: a rare task has few, and what differs between these is noise.
    """
    period_ns = effective_period_ns(workload.task(plan.task), workload)
    if period_ns is None:
        return plan
    kind = {p.name: i for i, group in enumerate(equivalent(processors)) for p in group}
    samples: dict[tuple[str, int], list[Latency]] = {}
    for r in paced.rows:
        if r.bundle == plan.bundle and r.condition == period_condition(period_ns):
            samples.setdefault((r.subgraph, kind[r.processor]), []).append(r.latency)
    measured = {key: Latency.pooled(parts) for key, parts in samples.items()}
    steps = tuple(
        msgspec.structs.replace(s, latency=measured.get((s.subgraph, kind[s.processor]), s.latency)) for s in plan.steps
    )  # fmt: skip
    return msgspec.structs.replace(
        plan, steps=steps, inputs=paced.inputs.get(plan.task), outputs=paced.outputs.get(plan.task)
    )  # fmt: skip
