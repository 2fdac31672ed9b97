"""When jobs are released. Load is open-loop: releases never wait for completions. Live and simulated runs share these times."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from itertools import count, cycle, groupby, repeat, takewhile
from operator import itemgetter
from pathlib import Path

from edgeengine.errors import UserError
from edgeengine.workload.task import NS_PER_MS, Phase, Task, Workload


def release_times(task: Task, seed: int = 0) -> Iterator[int]:
    """Nominal release times of a task in nanoseconds since the start, ascending, without end (but for a trace).

    `seed` is the run's, added to the pattern's own. Empty for tasks without a pattern of their own.
    """
    arrivals = task.arrivals
    if task.period_ns is not None:
        return _periodic(task, task.period_ns, random.Random(f"jitter:{seed}:{task.name}"))
    if arrivals is None:
        return iter(())
    if arrivals.trace is not None:
        return iter(sorted(_read_trace(Path(arrivals.trace))))
    rng = random.Random(f"arrivals:{arrivals.seed + seed}:{task.name}")
    return _poisson(arrivals.poisson, rng) if arrivals.poisson is not None else _bursty(arrivals.bursty or (), rng)


def _periodic(task: Task, period_ns: int, rng: random.Random) -> Iterator[int]:
    rate_hz, jitter_ns = task.rate_hz, round(task.jitter_ms * NS_PER_MS)
    # rate_hz = 30 has no whole period in ns: multiply first, so that it does not drift.
    nominal = count(0, period_ns) if rate_hz is None else (round(index * 1e9 / rate_hz) for index in count())
    return (ns + rng.randrange(jitter_ns + 1) for ns in nominal) if jitter_ns else nominal


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

    `seed` is the run's: other seeds draw other jitter and other irregular arrivals. `next_ns` is the next nominal release; None
    when there are no more.
    """

    next_ns: int | None

    def __init__(self, workload: Workload, stop_ns: int | None, seed: int = 0):
        patterns = []
        for position, task in enumerate(workload.tasks):
            times = release_times(task, seed)
            times = times if stop_ns is None else takewhile(stop_ns.__gt__, times)
            patterns.append(zip(times, repeat(position), zip(repeat(task.name), count())))
        self._instants = groupby(heapq.merge(*patterns), key=itemgetter(0))
        self.next_ns, self._due = next(self._instants, NONE)

    def pop(self) -> list[tuple[str, int]]:
        """(task, index) of all releases at `next_ns`, which moves on."""
        due = [job for _, _, job in self._due]
        self.next_ns, self._due = next(self._instants, NONE)
        return due


NONE: tuple[None, Iterator[tuple[int, int, tuple[str, int]]]] = (None, iter(()))
