"""What a what-if maximises over the jobs of a simulated run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from edgeengine.scheduling import Job
from edgeengine.scheduling.job import MET
from edgeengine.workload import Workload
from edgeengine.workload.xr import RUN_MS
from edgeengine.workload.xr_score import Frame, XrScore, xr_score

Objective = Callable[[Workload, Sequence[Job]], float]


def xr_frame(job: Job, run_ms: float = RUN_MS) -> Frame | None:
    """The job as XRBench counts it: only if its deadline lies within the run."""
    if job.deadline_ns is None or job.deadline_ns > run_ms * 1e6:
        return None
    completion_ms = job.finish_ns / 1e6 if job.finished and job.finish_ns is not None else None
    return Frame(job.task.name, job.deadline_ns / 1e6, completion_ms, job.energy_mj or 0.0)


def xr_frames(jobs: Sequence[Job], run_ms: float = RUN_MS) -> list[Frame]:
    return [frame for job in jobs if (frame := xr_frame(job, run_ms)) is not None]


class XrScores:
    """XRBench's scores of the jobs as they end: "strict", late frames counted as dropped, and "as_coded", as its code has it."""

    def __init__(self, run_ms: float):
        self._run_ms = run_ms
        self._scores = {"strict": XrScore(strict=True), "as_coded": XrScore(strict=False)}

    def add(self, job: Job) -> None:
        frame = xr_frame(job, self._run_ms)
        if frame is not None:
            for score in self._scores.values():
                score.add(frame)

    @property
    def values(self) -> dict[str, float]:
        return {name: score.value for name, score in self._scores.items()}


def xr_strict(_: Workload, jobs: Sequence[Job]) -> float:
    """XRBench's score, late frames counted as dropped."""
    return xr_score(xr_frames(jobs), strict=True)


CLASS_WEIGHT = (10_000.0, 100.0, 1.0)  # high, normal, background: a class counts before all below it


def on_time(_: Workload, jobs: Sequence[Job]) -> float:
    """Per class the mean over its tasks of (jobs met / released) squared: what is missed anyway had better be one task's."""
    released: dict[str, int] = defaultdict(int)
    met: dict[str, int] = defaultdict(int)
    rank: dict[str, int] = {}
    for job in jobs:
        if not job.task.train:
            rank[job.task.name] = job.task.rank
            released[job.task.name] += 1
            met[job.task.name] += job.outcome == MET
    total = 0.0
    for of_class, weight in enumerate(CLASS_WEIGHT):
        shares = [(met[name] / n) ** 2 for name, n in released.items() if rank[name] == of_class]
        total += weight * sum(shares) / len(shares) if shares else 0.0
    return total
