"""What learning does to those who are served, and what it gets of the slack: from one run of stretches with and without it.

Pure functions of ended jobs and the event log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgeengine.events import Finished, LogLine
from edgeengine.scheduling import Job

MISSES = ("late", "dropped", "failed", "rejected")
RESAMPLES = 2000


@dataclass(frozen=True)
class Stretch:
    """From `begin_ns` to `end_ns` of the run, with learning or without."""

    begin_ns: int
    end_ns: int
    learning: bool

    def holds(self, at_ns: int) -> bool:
        return self.begin_ns <= at_ns < self.end_ns


@dataclass(frozen=True)
class Service:
    """One task's jobs: latencies in ms of those that finished, by stretch, with and without learning; how many missed."""

    task: str
    on: list[np.ndarray]
    off: list[np.ndarray]
    missed_on: int
    missed_off: int

    def p99(self, learning: bool) -> float:
        return float(np.quantile(np.concatenate(self.on if learning else self.off), 0.99))

    def ratio(self) -> float:
        return self.p99(True) / self.p99(False)

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """95 % of the ratio of the p99s, by drawing stretches again, with replacement (percentile bootstrap).

        Stretches are drawn, not jobs: what disturbs one job disturbs its neighbours. (Efron, "Bootstrap Methods", 1979.)
        """
        rng = np.random.default_rng(seed)

        def drawn(parts: Sequence[np.ndarray]) -> float:
            chosen = rng.integers(len(parts), size=len(parts))
            return float(np.quantile(np.concatenate([parts[i] for i in chosen]), 0.99))

        low, high = np.quantile([drawn(self.on) / drawn(self.off) for _ in range(RESAMPLES)], (0.025, 0.975))
        return float(low), float(high)

    def limit(self, micro_step_ms: float) -> float:
        """What the ratio may be: 1.05, and a wait for the longest micro-step."""
        return 1.05 + micro_step_ms / self.p99(False)


def service(task: str, jobs: Sequence[Job], stretches: Sequence[Stretch]) -> Service:
    """Of the jobs released within the stretches; a stretch without any counts for nothing."""
    found: dict[bool, list[np.ndarray]] = {True: [], False: []}
    missed = {True: 0, False: 0}
    mine = [j for j in jobs if j.task.name == task]
    for stretch in stretches:
        here = [j for j in mine if stretch.holds(j.release_ns)]
        done = [(j.finish_ns - j.release_ns) / 1e6 for j in here if j.finished and j.finish_ns is not None]
        if done:
            found[stretch.learning].append(np.array(done))
        missed[stretch.learning] += sum(j.outcome in MISSES for j in here)
    return Service(task, found[True], found[False], missed[True], missed[False])


def micro_steps(log: Sequence[LogLine], learners: Sequence[str]) -> dict[tuple[str, str], np.ndarray]:
    """Durations in ms of what the learning tasks ran, by task and subgraph."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in log:
        event = line.event
        if isinstance(event, Finished) and event.task in learners:
            found[event.task, event.subgraph].append(event.duration_ns / 1e6)
    return {key: np.array(values) for key, values in found.items()}


def slack_used(
    log: Sequence[LogLine],
    jobs: Sequence[Job],
    learners: Sequence[str],
    cores: Mapping[str, int],
    stretches: Sequence[Stretch],
) -> float:
    """The share of the slack that went into micro-steps of committed steps, in the stretches with learning.

    Slack = cores x wall - time inference ran. `cores` are those that a processor takes while it runs; the device's are the
    most that any takes.
    """
    committed = {(j.task.name, j.index) for j in jobs if j.outcome == "met" and j.task.name in learners}
    wall = inference = used = 0
    spans = [s for s in stretches if s.learning]
    for stretch in spans:
        wall += stretch.end_ns - stretch.begin_ns
    for event in (line.event for line in log if isinstance(line.event, Finished)):
        inside = sum(
            max(min(event.at_ns, s.end_ns) - max(event.at_ns - event.duration_ns, s.begin_ns), 0)  # type: ignore[union-attr]
            for s in spans
        )
        taken = inside * cores[event.processor]  # type: ignore[union-attr]
        if event.task not in learners:  # type: ignore[union-attr]
            inference += taken
        elif (event.task, event.index) in committed:  # type: ignore[union-attr]
            used += taken
    return used / (max(cores.values()) * wall - inference)
