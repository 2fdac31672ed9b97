"""The tensors of jobs: from sources, callers, parents (`feed`, `window`, `glue`) and the previous job (`carry`) to subgraphs.

Ownership: an array handed over is never written again by whoever made it. Providers return fresh arrays, sources promise the
same, and what a caller submits is copied; so nothing here copies between subgraphs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.result import JobFuture
from edgeengine.engine.windows import FrameWindow
from edgeengine.errors import UserError
from edgeengine.io import Source
from edgeengine.scheduling import Job
from edgeengine.spec import TensorSpec
from edgeengine.workload import Task, Workload

LAGGARDS = 64  # a child that may not be drawn is given up this many jobs behind the newest whose turn came


class JobData:
    """What travels with a job: what its caller gave, the tensors made so far (None until it starts), who waits for it, and the
    version of the weights that made them.
    """

    __slots__ = ("future", "given", "tensors", "version")

    def __init__(self, given: Tensors | None = None, future: JobFuture | None = None):
        self.given, self.future = given, future
        self.tensors: Tensors | None = None
        self.version = ""


class TaskData:
    """The data side of one task.

    A feed is kept until its job starts or ends, however long it waits: only a child with a `probability` cannot know which of
    its jobs come, so it gives up those far behind.
    """

    def __init__(self, spec: Task, bundle: Bundle | None, source: Source | None):
        self.spec, self.source = spec, source
        self.inputs = run_inputs(bundle) if bundle else ()
        self.outputs = tuple(o.name for o in bundle.manifest.outputs) if bundle else ()
        self.children: list[TaskData] = []
        self.feeds: dict[int, Tensors | Exception] = {}  # what parents handed on, or why they could not
        self._ended_early: set[int] = set()  # our jobs that ended before their parents: nobody will fetch their feeds
        self._newest = -1  # of our jobs whose turn came
        self._lock = threading.Lock()  # of all that is kept by index: parent jobs may finish at the same time
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
        self._windows = {name: FrameWindow(spec.window, by_name[name], spec.name) for name in spec.feed} if spec.window else None

    def gather(self, index: int, release_ns: int, given: Tensors | None = None) -> Tensors:
        """The inputs of a job that starts: caller or source, then state, then what its parent fed."""
        tensors: Tensors = {}
        if given is not None:
            tensors.update(given)
        elif self.source is not None:
            tensors.update(self.source.read(index, release_ns))
        tensors.update(self.state)
        tensors.update(self._fetch(index))
        return tensors

    def remember(self, outputs: Tensors) -> None:
        """Keep what the next job takes over from the one that made `outputs`."""
        for output, name in self.spec.carry.items():
            self.state[name] = outputs[output]

    def accept(self, index: int, outputs: Tensors) -> None:
        """Take what parent job `index` made, for our job of the same index."""
        arrays = {name: outputs[source.split(".", 1)[1]] for name, source in self.spec.feed.items()}
        if self.glue is not None:
            arrays = self.glue(arrays)
        if self._windows is None:
            self.keep(index, {name: _fit(a, self._shapes[name]) for name, a in arrays.items()})
            return
        with self._lock:
            for name, array in arrays.items():
                self._windows[name].push(index, array)
        self.keep(index, arrays)

    def keep(self, index: int, fed: Tensors | Exception) -> None:
        """Keep a feed for our job `index`, or why there is none, unless that job can no longer come."""
        with self._lock:
            if index in self._ended_early:
                self._ended_early.discard(index)
            else:
                self.feeds[index] = fed
            if self.spec.probability < 1:
                for i in [i for i in self.feeds if i < self._newest - LAGGARDS and i != index]:
                    del self.feeds[i]
            for window in (self._windows or {}).values():
                window.trim(min(self.feeds, default=index))

    def end(self, job: Job) -> None:
        """Our job ended: nobody will fetch its feed."""
        with self._lock:
            if self.feeds.pop(job.index, None) is not None:
                if job.outcome == "dropped":  # a rejected job says nothing of older ones: they may wait
                    self._newest = max(self._newest, job.index)
            elif self.spec.has_pattern and job.start_ns is None and job.cause != "parent":
                self._ended_early.add(job.index)

    def end_parent(self, index: int) -> None:
        """Parent job `index` ended, well or not: it hands nothing on any more."""
        with self._lock:
            self._ended_early.discard(index)

    def _fetch(self, index: int) -> Tensors:
        """What the parent fed to our job `index`; raises what kept it from doing so."""
        with self._lock:
            self._newest = max(self._newest, index)
            fed = self.feeds.pop(index, None)
            if isinstance(fed, Exception):
                raise fed
            if fed is None:
                return {}
            if self._windows is not None:  # put together only now, when earlier parent jobs may have finished too
                fed = {name: _fit(self._windows[name].newest(index), self._shapes[name]) for name in fed}
        return fed


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

    def sources(self) -> list[Source]:
        return [t.source for t in self.tasks.values() if t.source is not None]

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
        task.remember(tensors)
        for child in task.children:
            try:
                child.accept(index, tensors)
            except Exception as e:  # noqa: BLE001  the child's glue is at fault: its job fails, not the parent's
                child.keep(index, e)

    def outputs(self, job: Job) -> Tensors:
        """The model's outputs of a finished job."""
        if job.data is None or job.data.tensors is None or not job.finished:
            return {}
        return {name: job.data.tensors[name] for name in self.tasks[job.task.name].outputs}

    def forget(self, job: Job) -> None:
        """Release what an ended job held."""
        task = self.tasks[job.task.name]
        if task.spec.feed:
            task.end(job)
        for child in task.children:
            child.end_parent(job.index)
        job.data = None

    def check(self, task: str, inputs: dict[str, Any] | None) -> Tensors | None:
        """Copies of a caller's inputs; None when it gives none and the task has a source of its own.

        Raises UserError for an unknown, missing, ill-shaped or ill-typed one.
        """
        inputs = inputs or {}
        if not inputs and self.tasks[task].source is not None:
            return None
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
    except Exception as e:  # whatever a module does when it is imported
        raise UserError(f"task {task.name!r}, glue: cannot import {task.glue!r} ({e})") from e
