"""From a workload to a measured plan on this machine: profile what is not profiled yet, map, rehearse.

Nothing of a live run enters a plan: what simulations use was measured before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices import device_id
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine.dataflow import run_inputs
from edgeengine.engine.learning import plan_training, settings_of, trains
from edgeengine.engine.loading import open_sources
from edgeengine.engine.overheads import measure_overheads
from edgeengine.engine.rehearse import rehearse, rehearsed_plan, rehearsed_rows
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.io import Source, make_source
from edgeengine.planning import TaskInput, make_plan, plan_from_latencies
from edgeengine.profiling import (
    ProfileStore,
    candidates_of,
    measure_back_to_back,
    measure_chains,
    reference_tensors,
    resume,
    timestamp,
)  # fmt: skip
from edgeengine.spec import MachineRow, Plan, Processor, ProfileRow
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload

Progress = Callable[[str, float], None]  # what is being done, share done (0..1)


@dataclass(frozen=True)
class Budget:
    """Seconds of measuring: per bundle back to back, per task on its final chains, on the empty engine, on the
    rehearsal."""

    bundle_s: float = 3.0
    chains_s: float = 1.5
    overheads_s: float = 2.0
    rehearsal_s: float = 8.0


@dataclass
class Prepared:
    """A plan with everything that was measured for it; `warnings` say what was left out of it, and why."""

    plan: Plan
    rows: list[ProfileRow]
    machine: list[MachineRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def prepare(
    workload: Workload,
    bundles: dict[str, Bundle | None],
    store: ProfileStore,
    *,
    sources: dict[str, Source] | None = None,
    processors: Sequence[Processor],
    budget: Budget | None = None,
    progress: Progress | None = None,
    fresh: bool = False,
) -> Prepared:
    """Measure and plan. Back-to-back rows already in `store` are used as they are, unless `fresh`; new rows are put there.
    Micro-steps of training are measured on samples drawn at random.

    Raises UserError for a workload that mixes models and stated latencies, PlanInfeasible when a task can run nowhere.
    """
    models = {name: b for name, b in bundles.items() if b is not None}
    if not models:
        return Prepared(plan_from_latencies(workload), [])
    if len(models) < len(bundles):
        stated = next(name for name, b in bundles.items() if b is None)
        raise UserError(f"task {stated!r} states latency_ms while others have models: simulate them apart, or give it a model")
    usable = [p for p in processors if p.usable]
    if not usable:
        raise PlanInfeasible("no usable processor: see 'edgeengine devices'")
    return _Preparation(workload, models, usable, store, sources or {}, budget or Budget(), progress, fresh).run()


@dataclass
class _Preparation:
    workload: Workload
    bundles: dict[str, Bundle]
    usable: list[Processor]
    store: ProfileStore
    sources: dict[str, Source]
    budget: Budget
    progress: Progress | None
    fresh: bool
    device: str = field(default_factory=device_id)

    def run(self) -> Prepared:
        rows, tasks = [], []
        inputs = example_inputs(self.workload, self.bundles, self.sources)
        providers = load_providers()
        training = [t for t in self.workload.tasks if t.is_training and trains(self.bundles[t.name])]
        for i, task in enumerate(t for t in self.workload.tasks if t not in training):
            self._report(f"profiling {task.name}", i / len(self.bundles))
            measured = self._back_to_back(self.bundles[task.name], inputs[task.name], providers)
            rows += measured
            tasks.append(self._task_input(task, measured, inputs[task.name], providers))
        self._report("planning", 0.0)
        warnings = _warnings(rows, self.bundles)
        try:
            task_plans = make_plan(tasks, self.usable)
        except PlanInfeasible as e:
            raise PlanInfeasible("; ".join([str(e), *warnings])) from e
        for task in training:
            self._report(f"measuring the micro-steps of {task.name}", 0.0)
            task_plans += plan_training(
                task.name, self.bundles[task.name], self.usable, settings_of(self.workload).get(task.name)
            )
        _close(providers)  # sessions are made anew below: their creation and memory are measured, not a cache
        draft = Plan(SCHEMA, self.device, self.workload.sha256, tuple(self.usable), tuple(task_plans))
        self._report("measuring the engine itself", 0.0)
        machine = measure_overheads(draft.processors, self.device, seconds=self.budget.overheads_s)
        self._report("rehearsing: measuring at the periods", 0.0)
        rehearsal = rehearse(self.workload, draft, self.bundles, self.sources, self.budget.rehearsal_s)
        in_service = rehearsed_rows(rehearsal, self.workload, draft, rows)
        plan = rehearsed_plan(draft, rehearsal, {m.name: m.latency for m in machine})
        used = machine_rows(plan, timestamp())
        self.store.put([*in_service, *used])
        return Prepared(plan, [*rows, *in_service], used, warnings)

    def _report(self, what: str, share: float) -> None:
        if self.progress is not None:
            self.progress(what, share)

    def _back_to_back(self, bundle: Bundle, inputs: Tensors, providers: dict[str, Provider]) -> list[ProfileRow]:
        candidates = candidates_of(bundle, self.usable)
        tensors = {bundle.hash: reference_tensors(bundle, inputs)}
        stored = [] if self.fresh else self.store.rows(self.device, bundle.hash)
        left, known = resume(candidates, tensors, stored, width=None)
        rows = measure_back_to_back(
            left, tensors, providers, self.device,
            budget_s=self.budget.bundle_s, isolate=True, keep=lambda row: self.store.put([row]),
        )  # fmt: skip
        return [*known, *rows]

    def _serves(self, task: Task, row: ProfileRow) -> bool:
        """A bundle that learns meanwhile is served whole and on the CPU: versions go there."""
        bundle = self.bundles[task.name]
        learning = (self.bundles[t.name] for t in self.workload.tasks if t.is_training and trains(self.bundles[t.name]))
        if bundle.hash not in {b.hash for b in learning}:
            return True
        provider = next(p.provider for p in self.usable if p.name == row.processor)
        return row.subgraph == bundle.manifest.whole.name and provider == CpuProvider.name

    def _task_input(self, task: Task, rows: list[ProfileRow], inputs: Tensors, providers: dict[str, Provider]) -> TaskInput:
        return TaskInput(
            task=task,
            bundle=self.bundles[task.name],
            latency={(r.subgraph, r.processor): r.latency for r in rows if r.usable and self._serves(task, r)},
            resident_bytes={(r.subgraph, r.processor): r.resident_bytes for r in rows},
            measure=lambda chains: measure_chains(chains, inputs, providers, budget_s=self.budget.chains_s),
        )


def machine_rows(plan: Plan, measured_at: str) -> list[MachineRow]:
    """The costs of the machine that simulations of the plan add, those by task included, as rows of a profile."""
    costs = dict(plan.overheads) | {f"around:{t.task}": t.around for t in plan.tasks if t.around is not None}
    return [MachineRow(plan.device, name, latency, measured_at) for name, latency in costs.items()]


def example_inputs(workload: Workload, bundles: dict[str, Bundle], sources: dict[str, Source]) -> dict[str, Tensors]:
    """Inputs of each task to measure with: job 0 of its source, zero state, random values for what a parent would feed."""
    opened = open_sources(workload, dict(bundles), sources)
    made = {}
    for task in workload.tasks:
        if task.is_training and trains(bundles[task.name]):
            continue  # it reads the sample store
        specs = run_inputs(bundles[task.name])
        carried, source = set(task.carry.values()), opened[task.name]
        tensors: Tensors = dict(source.read(0, 0)) if source is not None else {}
        tensors |= {s.name: np.zeros(s.dims, s.dtype) for s in specs if s.name in carried}
        rest = [s for s in specs if s.name not in tensors]
        made[task.name] = tensors | (make_source("random:0", rest, task.range).read(0, 0) if rest else {})
    return made


def _warnings(rows: Sequence[ProfileRow], bundles: Mapping[str, Bundle]) -> list[str]:
    """One line for each subgraph and processor that no plan may use."""
    names = {b.hash: b.manifest.name for b in bundles.values()}
    excluded = [r for r in rows if not r.usable]
    return [f"{names[r.bundle]} {r.subgraph} is left out on {r.processor}: {r.verdict}, {r.reason}" for r in excluded]


def _close(providers: dict[str, Provider]) -> None:
    for provider in providers.values():
        provider.close()
