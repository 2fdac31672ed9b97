"""What a what-if maximises over the jobs of a simulated run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from edgeengine.scheduling import Job
from edgeengine.scheduling.job import MET
from edgeengine.workload import Workload
from edgeengine.workload.xr import RUN_MS
from edgeengine.workload.xr_score import Frame, xr_score

Objective = Callable[[Workload, Sequence[Job]], float]


def xr_frames(jobs: Sequence[Job], run_ms: float = RUN_MS) -> list[Frame]:
    """The frames that XRBench counts: those whose deadline lies within the run."""
    return [
        Frame(
            j.task.name,
            j.deadline_ns / 1e6,
            j.finish_ns / 1e6 if j.finished and j.finish_ns is not None else None,
            j.energy_mj or 0.0,
        )
        for j in jobs
        if j.deadline_ns is not None and j.deadline_ns <= run_ms * 1e6
    ]


def xr_scores(jobs: Sequence[Job], run_ms: float) -> dict[str, float]:
    """XRBench's score of a run, late frames counted as dropped, and as its code has it."""
    frames = xr_frames(jobs, run_ms)
    return {"strict": xr_score(frames, strict=True), "as_coded": xr_score(frames, strict=False)}


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
