"""Training as scheduled work: a learner's micro-steps are the subgraphs of a task; what it publishes is swapped between two jobs.

A training task of a bundle trains in jobs of one step each. Beside it stands a task named TASK/publish, which the engine
adds: a job of it makes a session of the new weights, guards it, loads it for service and swaps. Neither has a job while there
is nothing to learn from, or nothing new to publish.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.errors import UserError
from edgeengine.spec import Latency, Placement, Plan, Processor, Step, TaskPlan
from edgeengine.training.graphs import StepRefused, StepResult
from edgeengine.training.learner import Learner, Settings
from edgeengine.training.methods import Rehearsal
from edgeengine.training.state import Arrays
from edgeengine.training.store import VersionRecord
from edgeengine.workload import Task, Workload

PUBLISH = "/publish"
MOST_UNPUBLISHED = 500  # steps after which a version is tried although there is more to learn


class MicroStep:
    """An Executable that takes a learner one piece further. It reads and gives no tensors."""

    placement: Placement | None = None

    def __init__(self, advance: Callable[[], None]):
        self._advance = advance

    def run(self, feeds: Tensors) -> Tensors:
        self._advance()
        return {}


class Served:
    """An Executable whose weights are replaced between two runs. `version` is that of the runs that begin now."""

    def __init__(self, first: Executable, version: str):
        self._now = (first, version)
        self.placement = first.placement

    def swap(self, executable: Executable, version: str) -> Executable:
        """Returns the one before."""
        before, self._now = self._now[0], (executable, version)
        return before

    def begin(self) -> ServedRun:
        return ServedRun(*self._now)

    def run(self, feeds: Tensors) -> Tensors:
        return self._now[0].run(feeds)


class ServedRun:
    """One run, by one version."""

    __slots__ = ("_run", "version")

    def __init__(self, executable: Executable, version: str):
        self.version = version
        self._run = executable.begin() if hasattr(executable, "begin") else executable

    def run(self, feeds: Tensors) -> Tensors:
        return self._run.run(feeds)

    def terminate(self) -> None:
        if hasattr(self._run, "terminate"):
            self._run.terminate()


@dataclass(frozen=True)
class Learned:
    """What a training task has done in this run, for reports: `steps` committed and `refused`, the mean loss of its first and its
    last step (None for a head, which is solved), the versions it published, with the guard's scores before and after.
    """

    task: str
    steps: int
    refused: int
    loss_first: float | None
    loss_last: float | None
    serving: str
    versions: tuple[VersionRecord, ...]


class Training:
    """One training task: its learner, the micro-steps of its two tasks, and what serves its versions."""

    def __init__(self, task: str, learner: Learner):
        self.task, self.learner = task, learner
        self.refused = 0  # steps, for a loss or gradient that is not finite
        self._begun_at, self._known = learner.method.steps, {v.name for v in learner.versions}
        self._losses: list[float] = []  # the first, and the last
        self._work: dict[str, Iterator[object] | None] = {"step": None, "publish": None}
        self._tried = learner.method.steps  # the steps in the version that was last made
        self._served: list[tuple[Served, Callable[[Arrays], Executable]]] = []
        self._loaded: list[Executable] = []
        self._before: list[Executable] = []
        self._adopted: Arrays | None = None  # a version that shall serve, as soon as a job comes to it
        self.on_swap: Callable[[str, str], None] = lambda task, version: None  # told when another version serves
        learner.swapped = self._swapped

    # ---- jobs ----

    def ready(self, task: str) -> bool:
        """Whether a job of `task`, one of the two, has something to do."""
        if task == self.task:
            return self.learner.busy
        new = self.learner.method.steps - self._tried
        return self._adopted is not None or new >= MOST_UNPUBLISHED or (new > 0 and not self.learner.busy)

    def adopt(self, version: Arrays) -> None:
        """Have the next publishing job put this version into service."""
        self._adopted = version

    def executables(self) -> dict[tuple[str, str], Executable]:
        """(task, subgraph) -> micro-step, for both tasks."""
        found: dict[tuple[str, str], Executable] = {}
        chains = {"step": (self.task, step_names(self.learner)), "publish": (self.task + PUBLISH, publish_names(self.learner))}
        for kind, (task, names) in chains.items():
            for name in names:
                found[task, name] = MicroStep(partial(self._advance, kind, name == names[0], name == names[-1]))
        return found

    def _advance(self, kind: str, first: bool, last: bool) -> None:
        """The next piece; a job that was given up has left its work behind, which the next one drops."""
        if first:
            self._work[kind] = self.learner.micro_steps() if kind == "step" else self._publish()
        work = self._work[kind]
        try:
            while work is not None:
                done = next(work, self)
                if isinstance(done, StepResult):
                    self._losses[1:] = [done.loss]
                if done is not None:
                    work = self._work[kind] = None
                if not last:
                    break
        except StepRefused:
            self.refused += 1
            self._work[kind] = None
            self.learner.refuse()

    def _publish(self) -> Iterator[object]:
        version = self._adopted
        if version is not None:
            for done in self.learner.adopt_steps(version, self._load):
                if done is not None and self._adopted is version:
                    self._adopted = None
                yield done
            return
        self._tried = self.learner.method.steps
        yield from self.learner.publish_steps(self._load)

    @property
    def learned(self) -> Learned:
        losses = self._losses if not self.learner.method.takes_each else []
        return Learned(
            self.task, self.learner.method.steps - self._begun_at, self.refused,
            losses[0] if losses else None, losses[-1] if losses else None, self.learner.serving,
            tuple(v for v in self.learner.versions if v.name not in self._known),
        )  # fmt: skip

    # ---- what serves ----

    def serve(self, executable: Executable, load: Callable[[Arrays], Executable]) -> Served:
        """Wrap what serves a task of this bundle; `load` makes the same with other weights."""
        served = Served(executable, self.learner.serving)
        self._served.append((served, load))
        return served

    def _load(self, tensors: Arrays) -> None:
        made: dict[int, Executable] = {}  # core 0 and core 1 share one
        self._loaded = []
        for _, load in self._served:
            key = id(load)
            made[key] = made[key] if key in made else load(tensors)
            self._loaded.append(made[key])

    def _swapped(self, name: str) -> None:
        """Another version serves: what was loaded for it, or on the way back what served before."""
        if not self._loaded and len(self._before) != len(self._served):
            self._load(self.learner.disk.version(name))
        coming = self._loaded or self._before
        self._before = [served.swap(e, name) for (served, _), e in zip(self._served, coming, strict=True)] if coming else []
        self._loaded = []
        self.on_swap(self.task, name)


def step_names(learner: Learner) -> list[str]:
    """The micro-steps of a training step: its runs (gradients of each micro-batch, the optimizer), then the commit."""
    return [*(f"part{i}" for i in range(learner.method.parts)), "commit"]


def publish_names(learner: Learner) -> list[str]:
    """The micro-steps that publish: session, guard on what is held back, load, swap."""
    return ["session", *(f"guard{i}" for i in range(learner.guard_parts)), "load", "swap"]


def with_publishing(workload: Workload, trainings: Mapping[str, Training]) -> Workload:
    """The workload and the publishing tasks of what trains."""
    added = tuple(Task(name=name + PUBLISH, model=workload.task(name).model, kind="train") for name in trainings)
    return msgspec.structs.replace(workload, tasks=(*workload.tasks, *added))


def find_trainings(
    workload: Workload, bundles: Mapping[str, Bundle | None], state: Path | None, settings: Mapping[str, Settings]
) -> dict[str, Training]:
    """A learner per training task whose bundle has training graphs, where there is a state folder to learn into.

    Raises UserError for settings of a task that does not train, or two tasks that train one bundle.
    """
    names = [t.name for t in workload.tasks if t.is_training and trains(bundles.get(t.name))]
    settings = settings_of(workload) | dict(settings)
    for name in settings:
        if name not in names:
            raise UserError(
                f"Engine: learning names {name!r}, which trains no bundle; those that do: {', '.join(names) or 'none'}"
            )
    if state is None:
        return {}
    found: dict[str, Training] = {}
    for name in names:
        bundle = bundles[name]
        assert bundle is not None
        twin = next((t for t in found.values() if t.learner.bundle.hash == bundle.hash), None)
        if twin is not None:
            raise UserError(f"tasks {twin.task!r} and {name!r} train the same bundle; leave one of them out")
        found[name] = Training(name, Learner(bundle, state, settings.get(name)))
    return found


def settings_of(workload: Workload) -> dict[str, Settings]:
    """How the workload says that its training tasks learn."""
    return {
        task.name: Settings(
            method=task.learn.method,
            store_bytes=task.learn.store_kb << 10,
            margin=task.learn.margin,
            weights=tuple(sorted(task.learn.weights.items())),
            steps_per_sample=task.learn.steps_per_sample,
            rehearsal=Rehearsal(
                new=task.learn.new,
                old=task.learn.old,
                micro_batch=task.learn.micro_batch,
                lr=task.learn.lr,
                average=0.95,
                blend=0.7,
            ),
        )
        for task in workload.tasks
        if task.learn is not None
    }


def trains(bundle: Bundle | None) -> bool:
    return bundle is not None and bundle.manifest.training is not None


def serve_versions(
    plan: Plan,
    bundles: Mapping[str, Bundle | None],
    trainings: Mapping[str, Training],
    executables: dict[str, dict[tuple[str, str], Executable]],
) -> None:
    """Put what runs a bundle that is being trained under `Served`, with the version that serves now, in place.

    Raises UserError where it runs in parts or not on the CPU: versions are served whole, by ONNX Runtime's CPU provider.
    """
    processors = {p.name: p for p in plan.processors}
    for training in trainings.values():
        bundle, learner = training.learner.bundle, training.learner
        loaders: dict[tuple[int, tuple[int, ...]], Callable[[Arrays], Executable]] = {}
        for task in (t for t in plan.tasks if t.task in bundles and t.task not in trainings):
            same = bundles[task.task]
            if same is None or same.hash != bundle.hash:
                continue
            for step in task.steps:
                processor = processors[step.processor]
                if step.subgraph != bundle.manifest.whole.name or processor.provider != CpuProvider.name:
                    raise UserError(
                        f"task {task.task!r}: {step.subgraph} on {processor.name} cannot take new weights: "
                        "a bundle that learns runs whole and on the CPU; build it with --parts 1"
                    )
                key = (processor.threads, processor.cores if processor.threads > 1 else ())
                loaders.setdefault(key, _loader(bundle, step, processor))
                there = executables[processor.name]
                first = (
                    loaders[key](learner.disk.version(learner.serving)) if learner.serving else there[task.task, step.subgraph]
                )
                there[task.task, step.subgraph] = training.serve(first, loaders[key])


def load_training(
    plan: Plan, trainings: Mapping[str, Training], executables: dict[str, dict[tuple[str, str], Executable]]
) -> None:
    """Put the micro-steps of what trains on the processors that the plan gives them. Raises UserError for a plan without."""
    for training in trainings.values():
        pieces = training.executables()
        for task in (training.task, training.task + PUBLISH):
            steps = plan.task(task).steps
            if {(task, s.subgraph) for s in steps} != {key for key in pieces if key[0] == task}:
                raise UserError(f"task {task!r}: the plan was made for other settings of learning; plan again")
            for step in steps:
                executables.setdefault(step.processor, {})[task, step.subgraph] = pieces[task, step.subgraph]


def _loader(bundle: Bundle, step: Step, processor: Processor) -> Callable[[Arrays], Executable]:
    return lambda tensors: CpuProvider().load_version(bundle, step, processor, tensors)


# ---- planning ----


def plan_training(name: str, bundle: Bundle, processors: Sequence[Processor], settings: Settings | None = None) -> list[TaskPlan]:
    """The plans of a training task and its publishing, measured on samples drawn at random, in a folder thrown away."""
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as folder:
        training = Training(name, Learner(bundle, Path(folder), settings))
        durations = _rehearsed(training)
        subgraphs = {name: step_names(training.learner), name + PUBLISH: publish_names(training.learner)}
    single = [p for p in processors if p.usable and p.provider == CpuProvider.name and p.threads == 1]
    return [
        TaskPlan(
            task,
            bundle.hash,
            len(names),
            tuple(Step(n, i, i + 1, p.name, Latency.of(durations[task, n])) for i, n in enumerate(names) for p in single),
        )
        for task, names in subgraphs.items()
    ]


WARM, STEPS, PUBLICATIONS = 2, 100, 3
"""Steps made before any is measured, steps and publications measured. The first runs of a graph are its slowest, and among fewer
than a hundred the slowest is the p99: what the scheduler keeps free before each micro-step."""


def _rehearsed(training: Training) -> dict[tuple[str, str], list[int]]:
    learner, rng = training.learner, np.random.default_rng(0)
    spec, count = learner.samples.spec, learner.samples.capacity + 64
    inputs = {n: rng.standard_normal((count, *s)).astype(d) for n, (s, d) in spec.inputs.items()}
    label = rng.integers(0, max(spec.classes, 1), (count, *spec.label_shape)).astype(spec.label_dtype)
    learner.learn(inputs, label)
    found: dict[tuple[str, str], list[int]] = {}
    pieces = training.executables()
    for task, warm, times in ((training.task, WARM, STEPS), (training.task + PUBLISH, 0, PUBLICATIONS)):
        for turn in range(warm + times):
            for key, piece in pieces.items():
                if key[0] == task:
                    begun_ns = time.perf_counter_ns()
                    with suppress(StepRefused):
                        piece.run({})
                    if turn >= warm:
                        found.setdefault(key, []).append(max(time.perf_counter_ns() - begun_ns, 1))
    return found
