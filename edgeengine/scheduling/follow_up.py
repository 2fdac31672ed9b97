"""Events that follow from others: the next step of a training task, the end of jobs whose parents never come.

Shared by the live engine and the simulator, so that both send the same events at the same instants.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeengine.events import AnyEvent, Cancelled, Released
from edgeengine.scheduling.core import Scheduler
from edgeengine.scheduling.job import FAILED, Task

ORPHANED = "its parent's job was never released"


def first_training_releases(tasks: Iterable[Task]) -> list[Released]:
    """The first step of every training task, released at the start of the run."""
    return [Released(0, task.name, 0, 0) for task in tasks if task.train]


def follow_ups(scheduler: Scheduler, now: int, stop_ns: int | None, released_all: bool) -> list[AnyEvent]:
    """What follows from the step just made.

    A training task releases its next step as soon as the previous one ended, unless the run is over (`stop_ns`), the step failed,
    or was dropped before it began: then training stops. When all is
    released and what lives can never start, it is dropped.
    """
    events: list[AnyEvent] = []
    if stop_ns is None or now < stop_ns:
        # One that failed, or never began, would do so again at this very instant, for ever.
        begun = (j for j in scheduler.ended if j.task.train and j.start_ns is not None and j.outcome != FAILED)
        events += [Released(now, job.task.name, job.index + 1, now) for job in begun]
    if released_all and not events and scheduler.stuck:
        events += [Cancelled(now, job.task.name, job.index, ORPHANED) for job in scheduler.alive()]
    return events
