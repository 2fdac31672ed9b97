"""One row per task: what was released, how it ended, how long it took.

Miss rate = (late + dropped + failed + rejected) / released. Latencies are finish - release over finished (met or late) jobs,
the value whose rank is nearest to (n - 1) p.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import edgeengine
from edgeengine.errors import InternalError
from edgeengine.scheduling import Job
from edgeengine.scheduling.job import OUTCOMES
from edgeengine.spec import Plan
from edgeengine.workload import Task, Workload

Row = dict[str, str | int | float | None]


def task_rows(workload: Workload, jobs: Sequence[Job], released: Mapping[str, int]) -> list[Row]:
    """A row per task, in the order of the workload. `released` counts what the scheduler let in.

    Raises InternalError when the outcomes do not add up to it: a job was lost.
    """
    by_task: dict[str, list[Job]] = {t.name: [] for t in workload.tasks}
    for job in jobs:
        by_task[job.task.name].append(job)
    return [_row(t, by_task[t.name], released.get(t.name, 0)) for t in workload.tasks]


def _row(task: Task, jobs: Sequence[Job], released: int) -> Row:
    counts = Counter(j.outcome for j in jobs)
    if sum(counts[o] for o in OUTCOMES) != released:
        raise InternalError(f"task {task.name!r}: {released} jobs were released, {len(jobs)} ended")
    latencies = sorted((j.finish_ns or 0) - j.release_ns for j in jobs if j.finished)
    row: Row = {
        "task": task.name,
        "criticality": "train" if task.is_training else task.criticality,
        "released": released,
        **{outcome: counts[outcome] for outcome in OUTCOMES},
        "miss_rate": (released - counts["met"]) / released if released else 0.0,
    }
    for key, percent in (("p50_ms", 50), ("p90_ms", 90), ("p99_ms", 99), ("max_ms", 100)):
        row[key] = round(latencies[round((len(latencies) - 1) * percent / 100)] / 1e6, 4) if latencies else None
    return row


def with_basis(rows: list[Row], plan: Plan) -> list[Row]:
    """The rows, each with what its task's latencies rest on; as they are where all were measured or stated."""
    basis = {t.task: t.basis for t in plan.tasks}
    if set(basis.values()) <= {"measured", "stated"}:
        return rows
    return [row | {"basis": basis[str(row["task"])]} for row in rows]


def run_document(workload: Workload, jobs: Sequence[Job], released: Mapping[str, int], **about: object) -> dict[str, object]:
    """What `run` and `simulate` print as JSON: the rows, and about the run (mode, policy, seconds, device, …)."""
    return {"schema": 1, "edgeengine": edgeengine.__version__, "tasks": task_rows(workload, jobs, released), **about}
