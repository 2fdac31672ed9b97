"""When jobs are released. Load is open-loop: releases never wait for completions. Live and simulated runs share these times."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from pathlib import Path

from edgeengine.errors import UserError
from edgeengine.workload.task import NS_PER_MS, Task, Workload


def release_times(task: Task) -> Iterator[int]:
    """Nominal release times of a task in nanoseconds since the start, ascending, without end (but for a trace).

    Empty for tasks without a pattern of their own.
    """
    period = task.period_ns
    if period is not None:
        index = 0
        # rate_hz = 30 has no whole period in ns: multiply first, so that it does not drift.
        while True:
            yield round(index * 1e9 / task.rate_hz) if task.rate_hz is not None else index * period
            index += 1
    elif task.arrivals is not None and task.arrivals.poisson is not None:
        rng = random.Random(f"arrivals:{task.arrivals.seed}:{task.name}")
        now = 0.0
        while True:
            now += rng.expovariate(task.arrivals.poisson) * 1e9
            yield round(now)
    elif task.arrivals is not None and task.arrivals.trace is not None:
        yield from sorted(_read_trace(Path(task.arrivals.trace)))


def _read_trace(file: Path) -> list[int]:
    times = []
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"{file}: cannot be read as a trace ({e}); give a text file with a release time in ms per line") from e
    for number, line in enumerate(lines, 1):
        text = line.split(",")[0].strip()
        if not text or text.startswith("#"):
            continue
        try:
            times.append(round(float(text) * NS_PER_MS))
        except (ValueError, OverflowError) as e:
            if number == 1:  # a header
                continue
            raise UserError(f"{file}, line {number}: {text!r} is not a release time in ms") from e
        if times[-1] < 0:
            raise UserError(f"{file}, line {number}: release time {text} is negative")
    return times


class Releases:
    """The releases of all tasks with release < `stop_ns`, merged in time order (ties: order of the tasks)."""

    def __init__(self, workload: Workload, stop_ns: int | None):
        self._stop_ns = stop_ns
        self._heap: list[tuple[int, int, int, str, Iterator[int]]] = []
        for position, task in enumerate(workload.tasks):
            self._push(position, 0, task.name, release_times(task))

    def _push(self, position: int, index: int, name: str, times: Iterator[int]) -> None:
        release_ns = next(times, None)
        if release_ns is not None and (self._stop_ns is None or release_ns < self._stop_ns):
            heapq.heappush(self._heap, (release_ns, position, index, name, times))

    @property
    def next_ns(self) -> int | None:
        """The next nominal release; None when there are no more."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> tuple[int, str, int]:
        """(release_ns, task, index) of the next release."""
        release_ns, position, index, name, times = heapq.heappop(self._heap)
        self._push(position, index + 1, name, times)
        return release_ns, name, index
