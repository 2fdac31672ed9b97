"""What commands on workloads share: from a workload file to opened bundles and a measured plan, cached in the state folder."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

import edgeengine
from edgeengine.bundle import Bundle, open_bundle
from edgeengine.cli.console import note
from edgeengine.devices import device_id, discover, usable_cores
from edgeengine.engine.loading import no_source
from edgeengine.engine.prepare import Prepared, machine_rows, prepare
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.io import Source, make_source
from edgeengine.profiling import ProfileStore, versions
from edgeengine.spec import MachineRow, Plan, Processor, ProfileRow, parse_shape
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload

Progress = Callable[[str, float], None]


def open_or_build(workload: Workload, state: Path, sources: dict[str, Source], progress: Progress) -> dict[str, Bundle | None]:
    """The bundle of every task that has a model; an .onnx is built into STATE/bundles once per content and shapes."""
    bundles: dict[str, Bundle | None] = {}
    trained = {t.model for t in workload.tasks if t.is_training and t.model is not None}
    for i, task in enumerate(workload.tasks):
        if task.model is None:
            bundles[task.name] = None
        elif Path(task.model).is_dir():
            bundles[task.name] = open_bundle(task.model)
        else:
            progress(f"building {task.name}", i / len(workload.tasks))
            bundles[task.name] = _trainable(task, state) if task.model in trained else _build(task, state, sources)
    return bundles


def _trainable(task: Task, state: Path) -> Bundle:
    """The bundle with training graphs, one for the tasks that serve the model and the one that trains it."""
    from edgeengine.gradients import Request, build_trainable

    request = Request(train="all")
    return _cached(
        Path(task.model or ""),
        state,
        f"trainable {request}",
        lambda folder: build_trainable(task.model or "", folder, request, parts=1),
    )


def _build(task: Task, state: Path, sources: dict[str, Source]) -> Bundle:
    shapes = {name: parse_shape(text, f"task {task.name!r}, shapes.{name}") for name, text in task.shapes.items()}
    return cached_build(Path(task.model or ""), state, shapes, _example_inputs(task, shapes, sources))


def cached_build(
    model: Path,
    state: Path,
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Mapping[str, np.ndarray],
    progress: Progress | None = None,
) -> Bundle:
    """The bundle in STATE/bundles of this model (external weights included), these shapes and values to verify with."""
    from edgeengine.graph import build_bundle

    about = hashlib.sha256(f"{sorted(shapes.items())}".encode())
    for name, array in sorted(inputs.items()):
        about.update(f" {name} {array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())

    def build(folder: Path) -> Bundle:
        return build_bundle(model, folder, shapes=shapes, inputs=inputs, progress=progress)

    return _cached(model, state, about.hexdigest(), build)


def _cached(model: Path, state: Path, about: str, build: Callable[[Path], Bundle]) -> Bundle:
    """What `build` makes of the model, kept by what decides it."""
    from edgeengine.graph import load_model

    key = hashlib.sha256(f"{edgeengine.__version__} {load_model(model).sha256} {about}".encode())
    folder = state / "bundles" / f"{model.stem}-{key.hexdigest()[:16]}.edge"
    if folder.is_dir():
        try:
            return open_bundle(folder)
        except UserError:  # damaged, or of another schema: nobody's work but ours
            shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return build(folder)


def _example_inputs(task: Task, shapes: Mapping[str, tuple[int, ...]], sources: dict[str, Source]) -> dict[str, np.ndarray]:
    """Values to verify with where random ones might be out of range: the integer inputs, as the task will get them."""
    from edgeengine.graph import declared_inputs, load_model

    name = _source(task)
    if name is not None and name in sources:
        return {n: a for n, a in sources[name].read(0, 0).items() if a.dtype.kind in "iu"}
    text = task.inputs if task.inputs is not None and name is None else "random:0"
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
    emulated_speed: bool = False,
    options: Options | None = None,
) -> Prepared:
    """The plan for this machine: cached if workload, bundles, device and versions are the same, else measured now (and cached).

    `emulated_speed` takes what was measured on emulated processors for their speed. `fresh` measures in any case. A
    source that is not in `sources` is stood in for by random inputs, with a note. `options` as choose_processors takes them.
    """
    measured, absent = _with_stand_ins(workload, sources)
    for name in absent:
        note(f"source {name!r} is not here: measured with random inputs")
    about = [
        SCHEMA,
        edgeengine.__version__,
        versions(),
        workload.sha256,
        device_id(),
        usable_cores(),
        only,
        absent,
        emulated_speed,
        sorted((name, *sorted(given.items())) for name, given in (options or {}).items()),
    ]
    key = hashlib.sha256(" ".join([*map(str, about), *(b.hash if b else "-" for b in bundles.values())]).encode())
    cached = state / "plans" / f"{key.hexdigest()[:24]}.json"
    if cached.is_file() and not fresh:
        try:
            return _with_warnings(msgspec.json.decode(cached.read_bytes(), type=Prepared))
        except (OSError, msgspec.DecodeError):
            pass  # damaged: measure again and replace it
    store = ProfileStore(state / "profile.sqlite")
    processors = choose_processors(only, tell=True, options=options)
    if not emulated_speed:
        processors = _real(processors)
    prepared = prepare(measured, bundles, store, sources=sources, processors=processors, progress=progress, fresh=fresh)
    if any(bundles.values()):
        from edgeengine.reporting import write_file

        write_file(cached, msgspec.json.format(msgspec.json.encode(prepared), indent=1))
    return _with_warnings(prepared)


def _with_warnings(prepared: Prepared) -> Prepared:
    for warning in prepared.warnings:
        note(f"warning: {warning}")
    return prepared


def _source(task: Task) -> str | None:
    """The name in `inputs = "source:NAME"`."""
    text = task.inputs or ""
    return text.removeprefix("source:") if text.startswith("source:") else None


def _with_stand_ins(workload: Workload, sources: Mapping[str, Source]) -> tuple[Workload, list[str]]:
    """The workload with random inputs where its sources are not given, and the names of those."""
    named = [_source(t) for t in workload.tasks]
    absent = list(dict.fromkeys(n for n in named if n is not None and n not in sources))
    tasks = tuple(
        msgspec.structs.replace(t, inputs="random:0") if n in absent else t for t, n in zip(workload.tasks, named, strict=True)
    )
    return msgspec.structs.replace(workload, tasks=tasks), absent


def require_sources(workload: Workload, sources: Mapping[str, Source]) -> None:
    """Raises UserError when a task reads a source that is not given: said before minutes of measuring, not after."""
    for task in workload.tasks:
        name = _source(task)
        if name is not None and name not in sources:
            raise no_source(task, name, sources)


Options = Mapping[str, Mapping[str, str]]  # of providers and sessions, by processor


def choose_processors(
    only: Sequence[str] | None, tell: bool = False, options: Options | None = None, flag: str = "--processor"
) -> list[Processor]:
    """This machine's processors, or those named; an emulated one only if it is named: its speed says nothing.

    `options` go with the processors they are given for. `tell` notes which were left out. `flag` is where the names come from.
    Raises UserError for names and options that are unknown, PlanInfeasible when none is usable, or one that was named is not.
    """
    found = discover(options)
    known = {p.name: p for p in found}
    for name in options or ():
        if name not in known:
            raise UserError(f"--option {name}.…: processor {name!r} is not on this machine; there are {', '.join(known)}")
    if only:
        for name in only:
            if name not in known:
                raise UserError(f"{flag} {name!r}: not on this machine; there are {', '.join(known)}")
            if not known[name].usable:
                raise PlanInfeasible(f"{flag} {name!r} is not usable: {known[name].reason}")
        found = [known[n] for n in dict.fromkeys(only)]
    else:
        for p in found:
            if p.emulated and tell:
                note(f"{p.name} is emulated, so its speed says nothing: left out; --processor {p.name} measures it all the same")
        found = [p for p in found if not p.emulated]
    if not any(p.usable for p in found):
        raise PlanInfeasible("no usable processor: see 'edgeengine devices'")
    return found


def _real(processors: list[Processor]) -> list[Processor]:
    """Without the emulated ones: a plan must not stand on their measured speed. Raises PlanInfeasible where no other is left."""
    real = [p for p in processors if not p.emulated]
    left_out = ", ".join(p.name for p in processors if p.emulated)
    if left_out and not any(p.usable for p in real):
        raise PlanInfeasible(
            f"{left_out}: emulated, and its measured speed is not that of the hardware; "
            "add other processors, or take it as it is with 'edgeengine plan --emulated-speed measured'"
        )
    if left_out:
        note(
            f"{left_out} is emulated: not planned on, its measured speed is not that of the hardware (--emulated-speed measured)"
        )
    return real


def rows_used(plan: Plan, store: ProfileStore) -> list[ProfileRow]:
    """The stored rows behind a plan's steps."""
    used = {(t.bundle, s.subgraph, s.processor) for t in plan.tasks for s in t.steps}
    return [r for r in store.rows(plan.device) if (r.bundle, r.subgraph, r.processor) in used]


def machine_used(plan: Plan, store: ProfileStore) -> list[MachineRow]:
    """The costs of the machine that are in a plan; when they were measured, where the store still has them."""
    when = {(r.name, r.latency): r.measured_at for r in store.machine_rows(plan.device)}
    return [msgspec.structs.replace(r, measured_at=when.get((r.name, r.latency), "")) for r in machine_rows(plan, "")]


def check_plan(plan: Plan, workload: Workload) -> Plan:
    """Raises UserError when the plan was made for another workload."""
    if plan.workload != workload.sha256:
        raise UserError(f"the plan was made for another version of {workload.path}; run 'edgeengine plan {workload.path}' again")
    return plan
