"""From a workload to a measured plan on this machine: profile what is not profiled yet, map, measure at the periods.

Nothing of a live run enters a plan: what simulations use was measured before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec
import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices import device_id
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.dataflow import DataFlow, run_inputs
from edgeengine.engine.loading import load_executables, open_sources
from edgeengine.engine.overheads import measure_overheads
from edgeengine.engine.priming import prime_windows
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.io import Source, make_source
from edgeengine.planning import TaskInput, make_plan, plan_from_latencies
from edgeengine.profiling import (
    BACK_TO_BACK,
    Candidate,
    Paced,
    PacedItem,
    ProfileStore,
    candidates_of,
    chain_tensors,
    measure_back_to_back,
    measure_chains,
    measure_paced,
    period_condition,
)  # fmt: skip
from edgeengine.spec import Latency, MachineRow, Plan, Processor, ProfileRow, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload

Progress = Callable[[str, float], None]  # what is being done, share done (0..1)


@dataclass
class Budget:
    """Seconds spent on measuring: per bundle back to back, per task on its final chains, on the shared timeline, on overheads."""

    bundle_s: float = 3.0
    chains_s: float = 1.5
    paced_s: float = 6.0
    overheads_s: float = 2.0


@dataclass
class Prepared:
    """A plan with everything that was measured for it."""

    plan: Plan
    rows: list[ProfileRow]
    machine: list[MachineRow] = field(default_factory=list)


def prepare(
    workload: Workload,
    bundles: dict[str, Bundle | None],
    store: ProfileStore,
    *,
    sources: dict[str, Source] | None = None,
    processors: Sequence[Processor],
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Measure and plan. Back-to-back rows already in `store` are used as they are; all new rows are put there.

    Raises UserError for a workload that mixes models and stated latencies, PlanInfeasible when a task can run nowhere.
    """
    report = progress or (lambda what, share: None)
    if all(b is None for b in bundles.values()):
        return Prepared(plan_from_latencies(workload), [])
    models = {name: b for name, b in bundles.items() if b is not None}
    if len(models) < len(bundles):
        stated = next(name for name, b in bundles.items() if b is None)
        raise UserError(f"task {stated!r} states latency_ms while others have models: simulate them apart, or give it a model")
    usable = [p for p in processors if p.usable]
    if not usable:
        raise PlanInfeasible("no usable processor: see 'edgeengine devices'")
    providers = {name: p for name, p in load_providers().items() if name in {u.provider for u in usable}}
    device = device_id()
    inputs = task_inputs(workload, models, sources or {})
    tensors = {name: _chain_tensors(b, inputs[name], usable[0]) for name, b in models.items()}

    rows: list[ProfileRow] = []
    given = []
    for i, task in enumerate(workload.tasks):
        bundle = models[task.name]
        report(f"profiling {task.name}", i / len(models))
        measured = _stored_or_measured(
            bundle, usable, tensors[task.name], providers, device, store, (budget or Budget()).bundle_s
        )
        rows += measured
        given.append(_task_input(task, bundle, measured, inputs[task.name], providers, (budget or Budget()).chains_s))
    report("planning", 0.0)
    task_plans = make_plan(given, usable)
    report("measuring at the periods", 0.0)
    _close(providers)  # sessions made anew below: their creation and memory are measured, not the cache
    draft = Plan(SCHEMA, device, workload.sha256, tuple(usable), tuple(task_plans))
    data = DataFlow(workload, dict(models), open_sources(workload, dict(models), sources or {}))
    prime_windows(workload, draft, data, load_executables(draft, dict(models), providers))
    paced = measure_paced(
        _paced_items(workload, models, draft, data), providers, device,
        seconds=(budget or Budget()).paced_s, progress=lambda share: report("measuring at the periods", share),
    )  # fmt: skip
    report("measuring the engine itself", 0.0)
    machine = measure_overheads(tuple(usable), device, seconds=(budget or Budget()).overheads_s)
    store.put([*paced.rows, *machine])
    _close(providers)
    plan = msgspec.structs.replace(
        draft,
        tasks=tuple(_with_paced(t, workload, paced) for t in task_plans),
        overheads={m.name: m.latency for m in machine},
    )
    return Prepared(plan, [*rows, *paced.rows], machine)


def _chain_tensors(bundle: Bundle, inputs: Tensors, processor: Processor) -> Tensors:
    """With a provider of its own: sessions kept from here would hide the cost of making them."""
    provider = load_providers()[processor.provider]
    try:
        return chain_tensors(bundle, inputs, provider, processor)
    finally:
        provider.close()


def _close(providers: dict[str, Provider]) -> None:
    for provider in providers.values():
        provider.close()


def task_inputs(workload: Workload, bundles: dict[str, Bundle], sources: dict[str, Source]) -> dict[str, Tensors]:
    """Example inputs of each task: job 0 of its source, zero state, random values for what a parent would feed."""
    opened = open_sources(workload, dict(bundles), sources)
    made = {}
    for task in workload.tasks:
        specs = run_inputs(bundles[task.name])
        carried, source = set(task.carry.values()), opened[task.name]
        tensors: Tensors = dict(source.read(0, 0)) if source is not None else {}
        for s in specs:
            if s.name in carried:
                tensors[s.name] = np.zeros([d if isinstance(d, int) else 1 for d in s.shape], s.dtype)
        rest = [s for s in specs if s.name not in tensors]
        made[task.name] = tensors | (make_source("random:0", rest, task.range).read(0, 0) if rest else {})
    return made


def _stored_or_measured(
    bundle: Bundle, usable: list[Processor], tensors: Tensors, providers: dict[str, Provider], device: str,
    store: ProfileStore, budget_s: float,
) -> list[ProfileRow]:  # fmt: skip
    candidates = candidates_of(bundle, usable)
    wanted = {(c.subgraph.name, c.processor.name) for c in candidates}
    stored = [r for r in store.rows(device, bundle.hash) if r.condition == BACK_TO_BACK]
    if {(r.subgraph, r.processor) for r in stored} >= wanted:
        return [r for r in stored if (r.subgraph, r.processor) in wanted]
    rows = measure_back_to_back(candidates, {bundle.hash: tensors}, providers, device, budget_s=budget_s)
    store.put(rows)
    return rows


def _task_input(
    task: Task, bundle: Bundle, rows: list[ProfileRow], inputs: Tensors, providers: dict[str, Provider], budget_s: float
) -> TaskInput:
    return TaskInput(
        task=task,
        bundle=bundle,
        latency={(r.subgraph, r.processor): r.latency for r in rows},
        resident_bytes={(r.subgraph, r.processor): r.resident_bytes for r in rows},
        measure=lambda chains: measure_chains(chains, inputs, providers, budget_s=budget_s),
    )


def _effective_period_ns(task: Task, workload: Workload) -> int | None:
    """Its own period, else its parent's: a follow-up runs as often."""
    while task.period_ns is None and task.after is not None:
        task = workload.task(task.after)
    return task.period_ns


def _paced_items(workload: Workload, bundles: dict[str, Bundle], draft: Plan, data: DataFlow) -> list[PacedItem]:
    """The chosen chains of all periodic tasks; those of follow-ups hang on their parents."""
    paced = [t for t in workload.tasks if t.period_ns or (not t.has_pattern and _effective_period_ns(t, workload))]
    position = {t.name: i for i, t in enumerate(paced)}
    by_name = {p.name: p for p in draft.processors}
    items = []
    for task in paced:
        plan = draft.task(task.name)
        names = dict.fromkeys(s.processor for s in plan.steps)
        chains = []
        for name in names:
            steps = [s for s in plan.steps if s.processor == name]
            if sum(s.stop - s.start for s in steps) == plan.segments:  # the whole chain on this processor
                manifest = bundles[task.name].manifest
                chains.append([Candidate(bundles[task.name], manifest.subgraph(s.subgraph), by_name[name]) for s in steps])
        if not chains:
            chains = [[
                Candidate(bundles[task.name], bundles[task.name].manifest.subgraph(s.subgraph), by_name[s.processor])
                for s in plan.steps
            ]]  # fmt: skip
        followers = tuple(position[t.name] for t in paced if t.after == task.name and not t.has_pattern)
        period = _effective_period_ns(task, workload)
        assert period is not None
        follows = task.after is not None and not task.has_pattern
        items.append(
            PacedItem(
                task.name, chains, partial(_gather, data, task.name, period), partial(data.finish, task.name),
                period, followers, follows,
            )
        )  # fmt: skip
    return items


def _gather(data: DataFlow, task: str, period_ns: int, index: int) -> Tensors:
    return data.tasks[task].gather(index, index * period_ns)


def _with_paced(plan: TaskPlan, workload: Workload, paced: Paced) -> TaskPlan:
    """The plan with latencies measured at the task's period wherever there are some: those hold in service."""
    period = _effective_period_ns(workload.task(plan.task), workload)
    if period is None:
        return plan
    measured: dict[tuple[str, str], Latency] = {
        (r.subgraph, r.processor): r.latency
        for r in paced.rows
        if r.bundle == plan.bundle and r.condition == period_condition(period)
    }
    steps = tuple(
        msgspec.structs.replace(s, latency=measured.get((s.subgraph, s.processor), s.latency)) for s in plan.steps
    )  # fmt: skip
    inputs, outputs = paced.inputs.get(plan.task), paced.outputs.get(plan.task)
    return msgspec.structs.replace(plan, steps=steps, inputs=inputs, outputs=outputs)
