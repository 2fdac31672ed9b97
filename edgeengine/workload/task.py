"""The records a workload file is read into. One `[[task]]` table is one Task; the keys are the fields."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgeengine.errors import UserError
from edgeengine.workload.learn import Learn

NS_PER_MS = 1_000_000


class Phase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One phase of a bursty pattern: Poisson releases at `rate_hz` for a time drawn about the mean `mean_ms`."""

    rate_hz: float
    mean_ms: float


class Arrivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Irregular releases, one of: `poisson` (mean rate in Hz); `bursty` (a Markov-modulated Poisson process: phases that follow
    one another in a circle, each lasting an exponentially distributed time); `trace` (a file, one release time in ms per line).
    """

    poisson: float | None = None
    bursty: tuple[Phase, ...] | None = None
    seed: int = 0
    trace: str | None = None


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a fed tensor keep the newest `frames` along its first axis of size above one; each parent job adds `hop` of them."""

    frames: int
    hop: int


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task. Times in the file are milliseconds; the properties give nanoseconds.

    Exactly one of `period_ms`, `rate_hz`, `arrivals` gives a release pattern; with none of them a task with `after` is released
    when its parent finishes, a training task when its previous step ended, and any other when the app submits. `jitter_ms`:
    each periodic release comes late by a time drawn evenly from 0 to it.
    """

    name: str
    model: str | None = None
    period_ms: float | None = None
    rate_hz: float | None = None
    arrivals: Arrivals | None = None
    jitter_ms: float = 0.0
    deadline_ms: float | None = None
    criticality: Literal["high", "normal", "background"] = "normal"
    after: str | None = None
    probability: float = 1.0
    kind: Literal["inference", "train"] = "inference"
    learn: Learn | None = None
    shapes: dict[str, str] = {}
    inputs: str | None = None
    range: tuple[int, int] | None = None
    carry: dict[str, str] = {}
    feed: dict[str, str] = {}
    window: Window | None = None
    glue: str | None = None
    stale: str | None = None
    weakly_hard: str | None = None
    latency_ms: dict[str, float] = {}
    segments: int = 1
    energy_mj: dict[str, float] | float | None = None
    inherited_deadline_ms: float | None = None  # set by the loader: the parent's period, for a child without its own pattern

    @property
    def is_training(self) -> bool:
        return self.kind == "train"

    @property
    def period_ns(self) -> int | None:
        if self.period_ms is not None:
            return round(self.period_ms * NS_PER_MS)
        return round(1000 * NS_PER_MS / self.rate_hz) if self.rate_hz is not None else None

    @property
    def relative_deadline_ns(self) -> int | None:
        """The given deadline, else the period (a child's: its parent's), else None."""
        if self.deadline_ms is not None:
            return round(self.deadline_ms * NS_PER_MS)
        if self.is_training:
            return None
        if self.period_ns is not None:
            return self.period_ns
        return round(self.inherited_deadline_ms * NS_PER_MS) if self.inherited_deadline_ms is not None else None

    @property
    def firm(self) -> tuple[int, int] | None:
        """(met, of): so many of any `of` consecutive jobs must be met."""
        if self.weakly_hard is None:
            return None
        met, _, of = self.weakly_hard.partition("/")
        return int(met), int(of)

    @property
    def has_pattern(self) -> bool:
        return self.period_ns is not None or self.arrivals is not None

    @property
    def latest_only(self) -> bool:
        return self.stale == "latest"

    @property
    def queue_limit(self) -> int | None:
        return int(self.stale.removeprefix("queue:")) if self.stale and self.stale.startswith("queue:") else None


class Workload(msgspec.Struct, frozen=True):
    """`path` is the file it came from ("" for one made in code); `sha256` its identity in plans."""

    tasks: tuple[Task, ...]
    path: str = ""
    sha256: str = ""

    def task(self, name: str) -> Task:
        """Raises UserError for a name that no task has."""
        for t in self.tasks:
            if t.name == name:
                return t
        raise UserError(f"the workload has no task {name!r}; known: {', '.join(t.name for t in self.tasks)}")
