"""Releases that follow from an end: a training task releases its next step as soon as the previous one ended.

Shared by the live engine and the simulator, so that both release the same jobs at the same instants.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeengine.events import Released
from edgeengine.scheduling.job import Job, Task


def first_training_releases(tasks: Iterable[Task]) -> list[Released]:
    """The first step of every training task, released at the start of the run."""
    return [Released(0, task.name, 0, 0) for task in tasks if task.train]


def training_releases(ended: list[Job], now: int, stop_ns: int | None) -> list[Released]:
    """The next step of each training job that ended, unless the run is over (`stop_ns`)."""
    if stop_ns is not None and now >= stop_ns:
        return []
    return [Released(now, job.task.name, job.index + 1, now) for job in ended if job.task.train]
