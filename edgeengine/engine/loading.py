"""Everything an engine opens before a deadline runs: bundles, sources, and the subgraphs of the plan on their processors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgeengine.bundle import Bundle, open_bundle
from edgeengine.devices import usable_cores
from edgeengine.devices.providers import Executable, Provider
from edgeengine.engine.dataflow import run_inputs
from edgeengine.errors import DeviceError, PlanInfeasible, UserError
from edgeengine.io import Source, make_source
from edgeengine.spec import Plan
from edgeengine.workload import Task, Workload


def open_bundles(workload: Workload, plan: Plan, given: dict[str, Bundle]) -> dict[str, Bundle | None]:
    """The bundle of each task (None for one described by latencies only).

    Raises UserError for a model that is not a bundle, or another one than the plan was made for.
    """
    if plan.workload and workload.sha256 and plan.workload != workload.sha256:
        raise UserError(f"the plan was made for another version of {workload.path}; run 'edgeengine plan {workload.path}' again")
    planned = {t.task: t for t in plan.tasks}
    bundles: dict[str, Bundle | None] = {}
    for task in workload.tasks:
        if task.name not in planned:
            raise UserError(f"the plan has no task {task.name!r}: it was made for another workload; run 'edgeengine plan' again")
        if task.model is None:
            bundles[task.name] = None
            continue
        bundle = given.get(task.name) or _open(task)
        if planned[task.name].bundle != bundle.hash:
            raise UserError(
                f"task {task.name!r}: the plan was made for another build of {bundle.path} (hash differs); "
                "run 'edgeengine plan' again"
            )
        bundles[task.name] = bundle
    return bundles


def _open(task: Task) -> Bundle:
    path = Path(task.model or "")
    if path.is_file():
        raise UserError(
            f"task {task.name!r}: {path} is not a bundle; make one with 'edgeengine build {path} -o {path.stem}.edge', "
            "or let 'edgeengine run' do it"
        )
    return open_bundle(path)


def open_sources(workload: Workload, bundles: Mapping[str, Bundle | None], given: dict[str, Source]) -> dict[str, Source | None]:
    """The source of each task that releases its own jobs; those without `inputs` get random ones."""
    return {task.name: _open_source(task, bundles[task.name], given) for task in workload.tasks}


def _open_source(task: Task, bundle: Bundle | None, given: dict[str, Source]) -> Source | None:
    if bundle is None:
        return None
    taken = {*task.carry.values(), *task.feed}
    free = [s for s in run_inputs(bundle) if s.name not in taken]
    submitted = not (task.has_pattern or task.after is not None or task.is_training)
    if not free or (submitted and task.inputs is None):
        return None
    for spec in free:
        if not spec.is_static:
            raise UserError(f"task {task.name!r}: input {spec.name!r} has shape {spec.shape}; rebuild the bundle with --shape")
    text = task.inputs or "random:0"
    if text.startswith("source:"):
        name = text.removeprefix("source:")
        if name not in given:
            raise no_source(task, name, given)
        return given[name]
    return make_source(text, free, task.range)


def no_source(task: Task, name: str, given: Mapping[str, Source]) -> UserError:
    return UserError(
        f"task {task.name!r}: no source {name!r} was given (given: {', '.join(given) or 'none'}); sources come from the app, "
        f'Engine(..., sources={{"{name}": ...}}); on the command line inputs = "file.npz" works'
    )


def load_executables(
    plan: Plan, bundles: Mapping[str, Bundle | None], providers: dict[str, Provider]
) -> dict[str, dict[tuple[str, str], Executable]]:
    """processor -> (task, subgraph) -> executable, for every step that the plan has for the tasks in `bundles`.

    Raises PlanInfeasible when the plan names a processor that is unusable here, DeviceError when loading fails.
    """
    processors, cores = {p.name: p for p in plan.processors}, usable_cores()
    loaded: dict[str, dict[tuple[str, str], Executable]] = {}
    for task in (t for t in plan.tasks if t.task in bundles):
        for step in task.steps:
            processor = processors.get(step.processor)
            if processor is None or not processor.usable:
                reason = processor.reason if processor else "not in the plan"
                raise PlanInfeasible(f"task {task.task!r}: processor {step.processor!r} is not usable ({reason}); plan again")
            if processor.host_core is not None and processor.host_core not in cores:
                raise PlanInfeasible(
                    f"task {task.task!r}: processor {step.processor!r} needs core {processor.host_core}, this process may use "
                    f"{', '.join(map(str, cores))}; plan again here"
                )
            provider = providers.get(processor.provider)
            if provider is None:
                raise DeviceError(f"no provider {processor.provider!r} here; known: {', '.join(providers)}")
            executable = provider.load(bundles[task.task], step, processor)
            loaded.setdefault(processor.name, {})[task.task, step.subgraph] = executable
    return loaded
