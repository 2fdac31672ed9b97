"""The tensors of jobs: from sources, callers, parents (`feed`, `window`, `glue`) and the previous job (`carry`) to subgraphs.

Ownership: an array handed over is never written again by whoever made it. Providers return fresh arrays, sources promise the
same, and what a caller submits is copied; so nothing here copies between subgraphs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.result import JobFuture
from edgeengine.errors import UserError
from edgeengine.io import Source
from edgeengine.scheduling import Job
from edgeengine.spec import TensorSpec
from edgeengine.workload import Task, Window, Workload

KEPT_FEEDS = 64  # feeds kept for children that may never be released (not drawn)


class JobData:
    """What travels with a job: what its caller gave, the tensors made so far (None until it starts), who waits for it."""

    __slots__ = ("future", "given", "tensors")

    def __init__(self, given: Tensors | None = None, future: JobFuture | None = None):
        self.given, self.future = given, future
        self.tensors: Tensors | None = None


class TaskData:
    """The data side of one task."""

    def __init__(self, spec: Task, bundle: Bundle | None, source: Source | None):
        self.spec, self.source = spec, source
        self.inputs = run_inputs(bundle) if bundle else ()
        self.outputs = tuple(o.name for o in bundle.manifest.outputs) if bundle else ()
        self.children: list[TaskData] = []
        self.feeds: dict[int, Tensors | Exception] = {}  # what parents handed on, or why they could not
        self.window = _FrameWindow(spec.window) if spec.window else None
        self.glue = _import_glue(spec) if spec.glue else None
        by_name = {i.name: i for i in self.inputs}
        fed = {*spec.carry.values(), *spec.feed}
        self.wanted = {i.name: i for i in self.inputs if i.name not in fed}  # what a caller gives
        for output, name in spec.carry.items():
            _must_know(spec, "carry", name, by_name)
            _must_know(spec, "carry", output, self.outputs)
        for name in spec.feed:
            _must_know(spec, "feed", name, by_name)
        self.state: Tensors = {name: _zeros(by_name[name]) for name in spec.carry.values()}
        self._shapes = {name: s.shape for name, s in by_name.items()}

    def gather(self, index: int, release_ns: int, given: Tensors | None = None) -> Tensors:
        """The inputs of a job that starts: caller or source, then state, then what its parent fed."""
        tensors: Tensors = {}
        if given is not None:
            tensors.update(given)
        elif self.source is not None:
            tensors.update(self.source.read(index, release_ns))
        tensors.update(self.state)
        fed = self.feeds.pop(index, None)
        if isinstance(fed, Exception):
            raise fed
        if fed is not None:
            tensors.update(fed)
        return tensors

    def accept(self, index: int, outputs: Tensors) -> None:
        """Take what parent job `index` made, for our job of the same index."""
        arrays = {name: outputs[source.split(".", 1)[1]] for name, source in self.spec.feed.items()}
        if self.glue is not None:
            arrays = self.glue(arrays)
        if self.window is not None:
            arrays = {name: self.window.push(index, a) for name, a in arrays.items()}
        self.feeds[index] = {name: _fit(a, self._shapes[name]) for name, a in arrays.items()}
        while len(self.feeds) > KEPT_FEEDS:
            del self.feeds[next(iter(self.feeds))]


class DataFlow:
    """All tasks' data. `gather`, `finish` and `forget` are called by workers; those of one job never at the same time."""

    def __init__(self, workload: Workload, bundles: Mapping[str, Bundle | None], sources: Mapping[str, Source | None]):
        self.given: dict[tuple[str, int], JobData] = {}  # by (task, index), for submitted jobs not looked at yet
        self.tasks = {t.name: TaskData(t, bundles[t.name], sources[t.name]) for t in workload.tasks}
        for task in workload.tasks:
            if task.feed and task.after is not None:
                parent = self.tasks[task.after]
                for name, source in task.feed.items():
                    _must_know(task, f"feed.{name}", source.split(".", 1)[1], parent.outputs)
                parent.children.append(self.tasks[task.name])

    def of(self, job: Job) -> JobData:
        """The job's data: what its caller gave, empty for one that the engine released."""
        if job.data is None:
            job.data = self.given.pop((job.task.name, job.index), None) or JobData()
        data: JobData = job.data
        return data

    def tensors(self, job: Job) -> Tensors:
        """The tensors the job has now; gathers its inputs if it is only starting."""
        data = self.of(job)
        if data.tensors is None:
            data.tensors = self.tasks[job.task.name].gather(job.index, job.release_ns, data.given)
        return data.tensors

    def finish(self, name: str, index: int, tensors: Tensors) -> None:
        """The last subgraph of job `index` of task `name` ended: keep its state, feed its children."""
        task = self.tasks[name]
        for output, name in task.spec.carry.items():
            task.state[name] = tensors[output]
        for child in task.children:
            try:
                child.accept(index, tensors)
            except Exception as e:  # noqa: BLE001  the child's glue or window is at fault: its job fails with this, not the parent's
                child.feeds[index] = e

    def outputs(self, job: Job) -> Tensors:
        """The model's outputs of a finished job."""
        if job.data is None or job.data.tensors is None or not job.finished:
            return {}
        return {name: job.data.tensors[name] for name in self.tasks[job.task.name].outputs}

    def forget(self, job: Job) -> None:
        """Release what an ended job held."""
        self.tasks[job.task.name].feeds.pop(job.index, None)
        job.data = None

    def check(self, task: str, inputs: dict[str, Any]) -> Tensors:
        """Copies of a caller's inputs. Raises UserError for an unknown, missing, ill-shaped or ill-typed one."""
        wanted = self.tasks[task].wanted
        for name in inputs:
            if name not in wanted:
                raise UserError(f"submit({task!r}): no input {name!r}; the task takes {', '.join(wanted) or 'none'}")
        tensors: Tensors = {}
        for name, spec in wanted.items():
            if name not in inputs:
                raise UserError(f"submit({task!r}): input {name!r} is missing; give {spec.dtype} of shape {spec.shape}")
            try:
                array = np.array(inputs[name], order="C")
            except ValueError as e:
                raise UserError(f"submit({task!r}): input {name!r} is not an array of {spec.dtype} ({e})") from e
            if spec.dtype != "str" and array.dtype != np.dtype(spec.dtype):
                raise UserError(f"submit({task!r}): input {name!r} is {array.dtype}, the model wants {spec.dtype}")
            if array.shape != spec.shape:
                raise UserError(
                    f"submit({task!r}): input {name!r} has shape {array.shape}, the bundle was built for {spec.shape}; "
                    "build another with --shape to run others"
                )
            tensors[name] = array
        return tensors


class _FrameWindow:
    """The newest frames of a stream whose jobs each bring `hop`, in order of job index however they finish."""

    def __init__(self, window: Window):
        self._window = window
        self._frames: deque[tuple[int, np.ndarray]] = deque(maxlen=2 * -(-window.frames // window.hop))
        self._lock = threading.Lock()

    def push(self, index: int, array: np.ndarray) -> np.ndarray:
        """Add job `index`'s frames; the newest `frames` up to it, shape [frames, …]. Raises UserError when there are too few."""
        frames = array.reshape([d for d in array.shape if d != 1] or [1])
        if len(frames) < self._window.hop:
            raise UserError(f"window: the parent gave {len(frames)} frames, hop says {self._window.hop}")
        with self._lock:
            self._frames.append((index, frames[-self._window.hop :]))
            ordered = [f for i, f in sorted(self._frames, key=lambda entry: entry[0]) if i <= index]
        joined = np.concatenate(ordered)[-self._window.frames :]
        if len(joined) < self._window.frames:
            raise UserError(f"window: {len(joined)} of {self._window.frames} frames so far; the parent has not run often enough")
        return joined


def run_inputs(bundle: Bundle) -> tuple[TensorSpec, ...]:
    """The model's inputs at the shapes the bundle was built for."""
    shapes = bundle.manifest.shapes
    return tuple(TensorSpec(i.name, i.dtype, tuple(shapes.get(i.name, i.shape))) for i in bundle.manifest.inputs)


def _fit(array: np.ndarray, shape: tuple[int | str, ...]) -> np.ndarray:
    """The array in the input's shape, when only size-1 axes differ."""
    if array.shape == shape:
        return array
    if [d for d in array.shape if d != 1] != [d for d in shape if d != 1]:
        raise UserError(f"feed: the parent's tensor has shape {array.shape}, the input wants {shape}; convert it with glue")
    return array.reshape(shape)  # type: ignore[arg-type]


def _zeros(spec: TensorSpec) -> np.ndarray:
    return np.zeros([d if isinstance(d, int) else 1 for d in spec.shape], spec.dtype)


def _must_know(task: Task, key: str, name: str, known: Any) -> None:
    if name not in known:
        raise UserError(f"task {task.name!r}, {key}: no tensor {name!r}; known: {', '.join(known)}")


def _import_glue(task: Task) -> Any:
    module, _, function = (task.glue or "").partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError) as e:
        raise UserError(f"task {task.name!r}, glue: cannot import {task.glue!r} ({e})") from e
