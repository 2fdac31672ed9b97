"""Read and check a workload file. Every fault is one line: the file, the task, the key, and what to write instead."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec import parse_shape
from edgeengine.workload.published import published
from edgeengine.workload.task import NS_PER_MS, Arrivals, Task, Workload


class _File(msgspec.Struct, forbid_unknown_fields=True):
    task: list[Task] = []


def load_workload(path: str | Path) -> Workload:
    """Read the TOML file at `path`; models, traces and inputs are resolved against its folder. Published ones are ready by name,
    on a described device: "xr:vr_gaming" (see workload.xr), "disb:A" (workload.disb), "band:sample" (workload.band).

    Raises UserError for anything that could not run: unknown keys, negative times, duplicate names, unknown or circular
    `after`, missing models.
    """
    ready = published(str(path))
    if ready is not None:
        return ready.workload()
    file = Path(path)
    try:
        raw = file.read_bytes()
    except OSError as e:
        raise UserError(f"{file}: cannot read the workload ({e.strerror}); give the path of a workload TOML") from e
    return parse_workload(raw, str(file))


def parse_workload(raw: bytes, path: str = "workload") -> Workload:
    """As load_workload, from bytes."""
    try:
        document = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as e:  # TOML errors, not UTF-8, numbers or nesting beyond what Python reads
        raise UserError(f"{path}: not valid TOML ({e}); see docs/workload.md for the format") from e
    try:
        tasks = msgspec.convert(document, _File).task
    except msgspec.ValidationError as e:
        raise UserError(f"{path}: {_readable(str(e), document)}; see docs/workload.md for the keys") from e
    return Workload(tasks=_checked(tasks, path), path=path, sha256=hashlib.sha256(raw).hexdigest())


def revised(workload: Workload, changes: Mapping[str, Mapping[str, object]]) -> Workload:
    """The workload with other values for some keys, by task and key; checked as if the file had said so.

    Raises UserError for an unknown task or key, and for what could not run.
    """
    tasks = {t.name: msgspec.to_builtins(t) for t in workload.tasks}
    for name, keys in changes.items():
        tasks[workload.task(name).name].update(keys, inherited_deadline_ms=None)
    document: dict[str, object] = {"task": list(tasks.values())}
    try:
        made = msgspec.convert(document, _File).task
    except msgspec.ValidationError as e:
        raise UserError(f"{workload.path}: {_readable(str(e), document)}; see docs/workload.md for the keys") from e
    plain = [msgspec.structs.replace(t, inherited_deadline_ms=None) for t in made]
    sha256 = hashlib.sha256(msgspec.json.encode([workload.sha256, changes], order="deterministic")).hexdigest()
    return Workload(tasks=_checked(plain, workload.path), path=workload.path, sha256=sha256)


def _checked(tasks: list[Task], path: str) -> tuple[Task, ...]:
    if not tasks:
        raise UserError(f"{path}: no [[task]] in it; add at least one")
    by_name: dict[str, Task] = {}
    for task in tasks:
        if task.name in by_name:
            raise UserError(f"{path}: two tasks are named {task.name!r}; names must differ")
        by_name[task.name] = task
    for task in tasks:
        _check_task(task, by_name, path)
    _check_cycles(by_name, path)
    return tuple(_resolve(t, by_name, path) for t in tasks)


def _readable(message: str, document: dict[str, object]) -> str:
    """msgspec says `$.task[2].period_ms`; people know their tasks by name."""
    tasks = document.get("task")
    if isinstance(tasks, list):
        for i, table in enumerate(tasks):
            name = table.get("name", f"number {i + 1}") if isinstance(table, dict) else f"number {i + 1}"
            message = message.replace(f"`$.task[{i}]", f"`task {name}").replace("`task " + str(name) + ".", f"`task {name}, key ")
    return message


SHORTEST_PERIOD_NS = 10_000
MOST_SEGMENTS = 10_000
MOST_FRAMES = 1_000_000
MOST_IN_WINDOW = 1_000
LONGEST_CHAIN = 100


def patterns_of(task: Task) -> list[str]:
    return [k for k in ("period_ms", "rate_hz", "arrivals") if getattr(task, k) is not None]


def _check_task(task: Task, by_name: dict[str, Task], path: str) -> None:
    def refuse(key: str, what: str) -> UserError:
        return UserError(f"{path}: task {task.name!r}, {key}: {what}")

    if not task.name or "." in task.name:
        raise refuse("name", "must not be empty nor hold a dot")
    for key in ("period_ms", "rate_hz", "deadline_ms"):
        value = getattr(task, key)
        if value is not None and not 1e-6 <= value <= 1e9:  # a nanosecond is the least there is
            raise refuse(key, f"must be a positive number (1e-6 to 1e9), not {value}")
    if task.period_ns is not None and task.period_ns < SHORTEST_PERIOD_NS:
        raise refuse(patterns_of(task)[0], "asks for more than 100,000 jobs a second; no processor serves them")
    patterns = patterns_of(task)
    if len(patterns) > 1:
        raise refuse(patterns[1], f"give only one release pattern, not {' and '.join(patterns)}")
    if task.arrivals is not None:
        _check_arrivals(task.arrivals, refuse)
    if not (0 <= task.jitter_ms <= 1e9 and round(task.jitter_ms * NS_PER_MS) <= (task.period_ns or 0)):
        raise refuse("jitter_ms", "must lie between 0 and the period; a task without period_ms or rate_hz has none")
    if task.inherited_deadline_ms is not None:
        raise refuse("inherited_deadline_ms", "is not a key of the file; give deadline_ms")
    if task.range is not None and task.range[0] > task.range[1]:
        raise refuse("range", f"[{task.range[0]}, {task.range[1]}] is empty; give [low, high], both included")
    for energy in task.energy_mj.values() if isinstance(task.energy_mj, dict) else [task.energy_mj or 0]:
        if not 0 <= energy < 1e12:
            raise refuse("energy_mj", f"must not be negative, and is {energy}")
    if not 0 <= task.probability <= 1:
        raise refuse("probability", f"must lie in 0..1, not {task.probability}")
    if task.probability < 1 and task.after is None:
        raise refuse("probability", "only a task with `after` can have one")
    if task.is_training and (task.after is not None or patterns):
        raise refuse("kind", "a training task is released when its previous step ended; give no pattern and no `after`")
    if task.learn is not None:
        _check_learn(task, refuse)
    _check_weakly_hard(task, refuse)
    if not 1 <= task.segments <= MOST_SEGMENTS:
        raise refuse("segments", f"must lie in 1..{MOST_SEGMENTS}, not {task.segments}")
    _check_source(task, by_name, path, refuse)


def _check_learn(task: Task, refuse) -> None:  # type: ignore[no-untyped-def]
    learn = task.learn
    assert learn is not None
    if not task.is_training:
        raise refuse("learn", 'is for a task of kind = "train"')
    positive = [x for x in (learn.lr, learn.steps_per_sample) if x is not None]
    if not (learn.store_kb >= 1 and 0 <= learn.margin < 1 and all(0 < x < 1e6 for x in positive)):
        raise refuse("learn", "needs store_kb of 1 or more, a margin from 0 to 1, lr and steps_per_sample above 0")
    if not (learn.new >= 0 and learn.old >= 0 and learn.new + learn.old >= 1 and learn.micro_batch >= 1):
        raise refuse("learn", "needs at least one sample a step, new or old, and a micro_batch of 1 or more")
    if learn.samples_hz is not None and not 0 < learn.samples_hz <= 1e5:
        raise refuse("learn", f"samples_hz must be a positive number up to 100,000, not {learn.samples_hz}")
    if any(not 0 <= w < 1e12 for w in learn.weights.values()):
        raise refuse("learn", "weights must not be negative")


def _check_weakly_hard(task: Task, refuse) -> None:  # type: ignore[no-untyped-def]
    if task.weakly_hard is None:
        return
    met, _, of = task.weakly_hard.partition("/")
    if not (_is_count(met) and _is_count(of) and 1 <= int(met) <= int(of) <= MOST_IN_WINDOW):
        raise refuse("weakly_hard", f'{task.weakly_hard!r} is not like "2/5": of any 5 jobs at least 2, at most {MOST_IN_WINDOW}')
    if task.is_training or task.probability < 1:
        raise refuse("weakly_hard", "is for tasks of which every job is released: neither training nor with a probability")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _check_arrivals(arrivals: Arrivals, refuse) -> None:  # type: ignore[no-untyped-def]
    if sum(way is not None for way in (arrivals.poisson, arrivals.bursty, arrivals.trace)) != 1:
        raise refuse("arrivals", "give one of poisson = RATE_HZ, bursty = [{rate_hz, mean_ms}, …] or trace = FILE")
    if arrivals.poisson is not None and not 0 < arrivals.poisson <= 1e5:
        raise refuse("arrivals", f"poisson rate must be a positive number up to 100,000, not {arrivals.poisson}")
    if arrivals.bursty is not None:
        if not any(phase.rate_hz > 0 for phase in arrivals.bursty):
            raise refuse("arrivals", "bursty needs a phase with a positive rate_hz")
        for phase in arrivals.bursty:
            if not (0 <= phase.rate_hz <= 1e5 and 1e-3 <= phase.mean_ms <= 1e9):
                wrong = f"rate_hz from 0 to 100,000 and mean_ms from 0.001 to 1e9, not {phase}"
                raise refuse("arrivals", f"a bursty phase has {wrong}")


def _check_source(task: Task, by_name: dict[str, Task], path: str, refuse) -> None:  # type: ignore[no-untyped-def]
    if (task.model is None) == (not task.latency_ms):
        raise refuse("model", "give a model (bundle or .onnx), or latency_ms = {processor = ms} to simulate without one")
    if task.model is not None and task.segments != 1:
        raise refuse("segments", "only with latency_ms; a model is cut when its bundle is built ('edgeengine split --parts')")
    if task.model is None and task.range is not None:
        raise refuse("range", "is for a model's integer inputs; a task with latency_ms has none")
    for name, value in task.latency_ms.items():
        if not 0 < value < 1e12:
            raise refuse(f"latency_ms.{name}", f"must be a positive number, not {value}")
    for name, text in task.shapes.items():
        parse_shape(text, f"{path}: task {task.name!r}, shapes.{name}")
    if task.after is not None and task.after not in by_name:
        raise refuse("after", f"there is no task {task.after!r}; known: {', '.join(by_name)}")
    for name, source in task.feed.items():
        parent = source.split(".", 1)[0]
        if "." not in source or parent not in by_name:
            raise refuse(f"feed.{name}", f"{source!r} is not like TASK.OUTPUT with one of {', '.join(by_name)}")
        if parent != task.after:
            raise refuse(f"feed.{name}", f"reads {parent!r}: also write after = {parent!r}, so that it is there")
    if task.window is not None and (
        not task.feed or task.window.hop < 1 or not task.window.hop <= task.window.frames <= MOST_FRAMES
    ):
        raise refuse("window", "needs a feed, hop >= 1 and frames from hop to a million")
    if task.glue is not None and not task.feed:
        raise refuse("glue", "converts what is fed: give a feed too")
    if task.glue is not None and ":" not in task.glue:
        raise refuse("glue", f"{task.glue!r} is not like module:function")
    if task.stale is not None and task.stale != "latest":
        limit = task.stale.removeprefix("queue:")
        if limit == task.stale or not (limit.isascii() and limit.isdigit()) or int(limit[:9]) < 1:
            raise refuse("stale", f'{task.stale!r} is neither "latest" nor "queue:N" with N >= 1')


def _check_cycles(by_name: dict[str, Task], path: str) -> None:
    sound: set[str] = set()
    for start in by_name.values():
        chain: dict[str, None] = {}
        task: Task | None = start
        while task is not None and task.name not in sound:
            if task.name in chain:
                raise UserError(f"{path}: `after` runs in a circle: {' -> '.join([*chain, task.name])}; take one link out")
            chain[task.name] = None
            task = by_name[task.after] if task.after is not None else None
        if len(chain) > LONGEST_CHAIN:
            raise UserError(f"{path}: a chain of more than {LONGEST_CHAIN} tasks by `after`; make it shorter")
        sound.update(chain)


def _resolve(task: Task, by_name: dict[str, Task], path: str) -> Task:
    """Make paths absolute, check that they exist, and let a child inherit its parent's period as deadline."""
    folder = Path(path).parent
    changes: dict[str, object] = {}
    if task.model is not None:
        model = (folder / task.model).absolute()
        if not model.exists():
            raise UserError(f"{path}: task {task.name!r}, model: {model} does not exist; give a bundle or an .onnx file")
        changes["model"] = str(model)
    if task.inputs is not None and task.inputs.endswith(".npz"):
        file = (folder / task.inputs).absolute()
        if not file.exists():
            raise UserError(f"{path}: task {task.name!r}, inputs: {file} does not exist")
        changes["inputs"] = str(file)
    if task.arrivals is not None and task.arrivals.trace is not None:
        trace = (folder / task.arrivals.trace).absolute()
        if not trace.exists():
            raise UserError(f"{path}: task {task.name!r}, arrivals.trace: {trace} does not exist")
        changes["arrivals"] = msgspec.structs.replace(task.arrivals, trace=str(trace))
    ancestor = task
    while ancestor.period_ns is None and ancestor.after is not None:
        ancestor = by_name[ancestor.after]
    if ancestor is not task and ancestor.period_ns is not None:
        changes["inherited_deadline_ms"] = ancestor.period_ns / 1e6
    return msgspec.structs.replace(task, **changes)
