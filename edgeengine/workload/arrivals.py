"""When jobs are released. Load is open-loop: releases never wait for completions. Live and simulated runs share these times."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

from edgeengine.errors import UserError
from edgeengine.workload.task import NS_PER_MS, Phase, Task, Workload


def release_times(task: Task, seed: int = 0) -> Iterator[int]:
    """Nominal release times of a task in nanoseconds since the start, ascending, without end (but for a trace).

    `seed` is the run's, added to the pattern's own. Empty for tasks without a pattern of their own.
    """
    arrivals = task.arrivals
    if task.period_ns is not None:
        yield from _periodic(task, random.Random(f"jitter:{seed}:{task.name}"))
    elif arrivals is None:
        return
    elif arrivals.trace is not None:
        yield from sorted(_read_trace(Path(arrivals.trace)))
    else:
        rng = random.Random(f"arrivals:{arrivals.seed + seed}:{task.name}")
        yield from _poisson(arrivals.poisson, rng) if arrivals.poisson is not None else _bursty(arrivals.bursty or (), rng)


def _periodic(task: Task, rng: random.Random) -> Iterator[int]:
    jitter_ns, period_ns = round(task.jitter_ms * NS_PER_MS), task.period_ns or 0
    for index in count():
        # rate_hz = 30 has no whole period in ns: multiply first, so that it does not drift.
        nominal_ns = round(index * 1e9 / task.rate_hz) if task.rate_hz is not None else index * period_ns
        yield nominal_ns + (rng.randrange(jitter_ns + 1) if jitter_ns else 0)


def _poisson(rate_hz: float, rng: random.Random) -> Iterator[int]:
    now = 0.0
    while True:
        now += rng.expovariate(rate_hz) * 1e9
        yield round(now)


def _bursty(phases: tuple[Phase, ...], rng: random.Random) -> Iterator[int]:
    """A Markov-modulated Poisson process (Fischer and Meier-Hellstern, 1993) whose states follow one another in a circle.

    The exponential distribution has no memory, so a draw that reaches past the end of a phase is thrown away.
    """
    begin = 0.0
    for phase in cycle(phases):
        end, now = begin + rng.expovariate(1e3 / phase.mean_ms) * 1e9, begin
        while phase.rate_hz > 0:
            now += rng.expovariate(phase.rate_hz) * 1e9
            if now >= end:
                break
            yield round(now)
        begin = end


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
    """The releases of all tasks with release < `stop_ns`, merged in time order (ties: order of the tasks).

    `seed` is the run's: other seeds draw other jitter and other irregular arrivals.
    """

    def __init__(self, workload: Workload, stop_ns: int | None, seed: int = 0):
        self._stop_ns = stop_ns
        self._heap: list[tuple[int, int, int, str, Iterator[int]]] = []
        for position, task in enumerate(workload.tasks):
            self._push(position, 0, task.name, release_times(task, seed))

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
