"""What commands on workloads share: from a workload file to opened bundles and a measured plan, cached in the state folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from edgeengine.bundle import Bundle, open_bundle, sha256
from edgeengine.devices import device_id, discover
from edgeengine.engine.prepare import Prepared, prepare
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.io import Source, make_source
from edgeengine.planning import load_plan
from edgeengine.profiling import ProfileStore
from edgeengine.spec import Plan, Processor, ProfileRow, parse_shape
from edgeengine.workload import Task, Workload

Progress = Callable[[str, float], None]


def open_or_build(workload: Workload, state: Path, sources: dict[str, Source], progress: Progress) -> dict[str, Bundle | None]:
    """The bundle of every task that has a model; an .onnx is built into STATE/bundles once per content and shapes."""
    bundles: dict[str, Bundle | None] = {}
    for i, task in enumerate(workload.tasks):
        if task.model is None:
            bundles[task.name] = None
        elif Path(task.model).is_dir():
            bundles[task.name] = open_bundle(task.model)
        else:
            progress(f"building {task.name}", i / len(workload.tasks))
            bundles[task.name] = _build(task, state, sources)
    return bundles


def _build(task: Task, state: Path, sources: dict[str, Source]) -> Bundle:
    model = Path(task.model or "")
    key = hashlib.sha256(f"{sha256(model)} {sorted(task.shapes.items())}".encode()).hexdigest()[:16]
    folder = state / "bundles" / f"{model.stem}-{key}.edge"
    if folder.is_dir():
        return open_bundle(folder)
    from edgeengine.graph import build_bundle

    folder.parent.mkdir(parents=True, exist_ok=True)
    shapes = {name: parse_shape(text, f"task {task.name!r}, shapes.{name}") for name, text in task.shapes.items()}
    return build_bundle(model, folder, shapes=shapes, inputs=_example_inputs(task, shapes, sources))


def _example_inputs(task: Task, shapes: Mapping[str, tuple[int, ...]], sources: dict[str, Source]) -> dict[str, np.ndarray]:
    """Values to verify with where random ones might be out of range: the integer inputs, as the task will get them."""
    from edgeengine.graph import declared_inputs, load_model

    text = task.inputs or "random:0"
    name = text.removeprefix("source:")
    if text != name:
        given = sources[name].read(0, 0) if name in sources else {}
        return {n: a for n, a in given.items() if a.dtype.kind in "iu"}
    if not text.endswith(".npz") and task.range is None:
        return {}
    specs = declared_inputs(load_model(task.model or ""), shapes)
    wanted = [s for s in specs if "int" in s.dtype and s.is_static and s.name not in task.feed]
    return make_source(text, wanted, task.range).read(0, 0) if wanted else {}


def measured_plan(
    workload: Workload,
    bundles: dict[str, Bundle | None],
    state: Path,
    sources: dict[str, Source],
    progress: Progress,
    only: Sequence[str] | None = None,
    fresh: bool = False,
) -> Prepared:
    """The plan for this machine: cached if workload, bundles and device are the same, else measured now (and cached).

    `fresh` measures in any case.
    """
    key = hashlib.sha256(
        " ".join([workload.sha256, device_id(), str(only), *(b.hash if b else "-" for b in bundles.values())]).encode()
    )
    cached = state / "plans" / f"{key.hexdigest()[:24]}.json"
    store = ProfileStore(state / "profile.sqlite")
    if cached.is_file() and not fresh:
        plan = load_plan(cached)
        return Prepared(plan, rows_used(plan, store), store.machine_rows(plan.device))
    processors = choose_processors(only)
    prepared = prepare(workload, bundles, store, sources=sources, processors=processors, progress=progress, fresh=fresh)
    if any(bundles.values()):
        from edgeengine.reporting import write_file

        write_file(cached, msgspec.json.format(msgspec.json.encode(prepared.plan), indent=1))
    return prepared


def choose_processors(only: Sequence[str] | None) -> list[Processor]:
    """This machine's processors, or those named. Raises UserError for unknown names, PlanInfeasible when none is usable."""
    found = discover()
    if only:
        known = {p.name: p for p in found}
        for name in only:
            if name not in known:
                raise UserError(f"--processor {name!r}: not on this machine; there are {', '.join(known)}")
        found = [known[n] for n in only]
    if not any(p.usable for p in found):
        raise PlanInfeasible("no usable processor: see 'edgeengine devices'")
    return found


def rows_used(plan: Plan, store: ProfileStore) -> list[ProfileRow]:
    """The stored rows behind a plan's steps."""
    used = {(t.bundle, s.subgraph, s.processor) for t in plan.tasks for s in t.steps}
    return [r for r in store.rows(plan.device) if (r.bundle, r.subgraph, r.processor) in used]


def check_plan(plan: Plan, workload: Workload) -> Plan:
    """Raises UserError when the plan was made for another workload."""
    if plan.workload != workload.sha256:
        raise UserError(f"the plan was made for another version of {workload.path}; run 'edgeengine plan {workload.path}' again")
    return plan
