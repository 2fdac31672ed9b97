"""What an app asks of an engine whose models learn: samples in, versions, whose head serves, and when to train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.engine.dataflow import DataFlow
from edgeengine.engine.drifting import DriftWatch
from edgeengine.engine.learning import Learned, Training
from edgeengine.engine.runtime import Runtime
from edgeengine.errors import UserError
from edgeengine.events import VersionReady
from edgeengine.training.adapters import AdapterPool
from edgeengine.training.learner import Learner
from edgeengine.training.store import VersionRecord


class Learns:
    """The part of an Engine that has to do with learning; `state` is where, None without."""

    _runtime: Runtime
    _data: DataFlow
    _running: bool
    _call_back: Callable[[Callable[[], Any]], None]

    def __init__(self, trainings: Mapping[str, Training], bundles: Mapping[str, Bundle | None], state: Path | None):
        self._trainings, self._bundles, self._state = trainings, bundles, state
        self._on_version: Callable[[str, str], None] | None = None
        self._drift_watch: DriftWatch | None = None
        self._pools: dict[str, AdapterPool] = {}
        for training in trainings.values():
            training.on_swap = self._swapped

    def learn(self, task: str, inputs: dict[str, np.ndarray], label: object, *, domain: str = "user") -> range:
        """Give labelled samples to what trains the model of `task`; they are safe on the disk when this returns.

        Args:
            task: a training task, or one that runs the model it trains.
            inputs: one array per model input, samples along the first axis.
            label: as the loss wants it, one per sample; a single one may be a scalar.
            domain: whom or where they come from, by which they can be deleted.

        Returns their numbers. Raises UserError for a task that nothing trains, and for samples that do not fit.
        """
        training = self._training(task)
        numbers = training.learner.learn(inputs, np.atleast_1d(np.asarray(label)), domain=domain)
        if self._running:
            self._runtime.wake_training()
        return numbers

    def train(self, task: str | None = None, steps: int = 100) -> None:
        """Train on command: so many more steps on the samples that are kept. A solved head has learned all it was given already.

        Raises UserError for a task that nothing trains, or no positive number of steps.
        """
        self._training(task).learner.train(steps)
        if self._running:
            self._runtime.wake_training()

    def versions(self, task: str | None = None) -> tuple[VersionRecord, ...]:
        """The versions published so far, oldest first; `task` may be left out where one model trains."""
        return self._training(task).learner.versions

    @property
    def learned(self) -> tuple[Learned, ...]:
        """What each training task has done in this run."""
        return tuple(t.learned for t in self._trainings.values())

    def rollback(self, task: str | None = None) -> str:
        """Put the version before into service, from the next job on; returns its name, "" for the bundle's own weights.

        Raises UserError where there is none.
        """
        return self._training(task).learner.rollback()

    def on_version(self, call: Callable[[str, str], None]) -> None:
        """Have `call(training task, version)` called, on a thread of its own, whenever another version serves."""
        self._on_version = call

    def adapters(self, task: str | None = None) -> AdapterPool:
        """The heads of people or sites that are kept for the model of `task`: see its `keep` and `forget`.

        Raises UserError for a task that nothing trains, and a model whose last layer is not linear.
        """
        training = self._training(task)
        if training.task not in self._pools:
            assert self._state is not None
            bundle = training.learner.bundle
            self._pools[training.task] = AdapterPool(bundle, self._state / "adapters" / bundle.hash)
        return self._pools[training.task]

    def use(self, task: str, user: str) -> None:
        """Have the head of `user` serve, from a job on that comes soon (see `on_version`); who has none gets the bundle's own."""
        version = self.adapters(task).version(user)
        self._training(task).adopt(version)
        if self._running:
            self._runtime.wake_training()

    def on_drift(self, call: Callable[[str, str], None]) -> None:
        """Have `call(task, what)` called, on a thread of its own, when what a task is given has changed, or how sure its model
        is of its first output (scores of classes): the time to ask for labels, or to train. From the next job on.
        """
        inputs = {name: tuple(i.name for i in task.inputs) for name, task in self._data.tasks.items()}
        self._drift_watch = DriftWatch(call, inputs)

    def learner(self, task: str | None = None) -> Learner:
        """What trains the model of `task`: its samples, steps and versions."""
        return self._training(task).learner

    def _training(self, task: str | None) -> Training:
        if task is None and len(self._trainings) == 1:
            return next(iter(self._trainings.values()))
        bundle = self._bundles.get(task) if task is not None else None
        for name, training in self._trainings.items():
            if task == name or (bundle is not None and bundle.hash == training.learner.bundle.hash):
                return training
        known = ", ".join(self._trainings) or "none: give Engine(…, state=FOLDER) and a task of kind train"
        raise UserError(f"no training task for {task!r}; there are {known}")

    def _swapped(self, task: str, version: str) -> None:
        if self._running:
            self._runtime.step(lambda now: VersionReady(now, task, version))
        if self._on_version is not None:
            call = self._on_version
            self._call_back(lambda: call(task, version))
