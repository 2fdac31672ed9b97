"""One row per task: what was released, how it ended, how long it took.

Miss rate = (late + dropped + failed + rejected) / released. Latencies are finish - release over finished (met or late) jobs,
the value whose rank is nearest to (n - 1) p. Where tasks are weakly hard, rows have `violations` too (None for the others);
where energies are known, `energy_mj`, the mean over finished jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import edgeengine
from edgeengine.errors import InternalError
from edgeengine.reporting.latencies import Latencies
from edgeengine.reporting.violations import Violations
from edgeengine.scheduling import Job
from edgeengine.scheduling.job import MET, OUTCOMES
from edgeengine.spec import Plan
from edgeengine.workload import Task, Workload

Row = dict[str, str | int | float | None]
PERCENTILES = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "max_ms": 100}


class Tally:
    """Counts ended jobs as they come, and keeps none: memory does not grow with their number (see Latencies).

    `causes` counts those that did not meet their deadline by (task, outcome, cause).
    """

    def __init__(self, workload: Workload):
        self._tasks = workload.tasks
        self._met: Counter[str] = Counter()
        self._latencies = {t.name: Latencies() for t in workload.tasks}
        self._energy_mj: dict[str, tuple[float, int]] = {}  # sum, and of how many finished jobs
        self._violations = {t.name: Violations(t.firm) for t in workload.tasks if t.firm is not None}
        self.causes: Counter[tuple[str, str, str]] = Counter()

    def add(self, job: Job) -> None:
        name = job.task.name
        if job.outcome == MET:
            self._met[name] += 1
        else:
            self.causes[name, job.outcome, job.cause] += 1
        if name in self._violations:
            self._violations[name].add(job.index, job.outcome == MET)
        if job.finish_ns is not None and job.finished:
            self._latencies[name].add(job.finish_ns - job.release_ns)
            if job.energy_mj is not None:
                total, count = self._energy_mj.get(name, (0.0, 0))
                self._energy_mj[name] = total + job.energy_mj, count + 1

    def rows(self, released: Mapping[str, int]) -> list[Row]:
        """A row per task, in the order of the workload. `released` counts what the scheduler let in.

        Raises InternalError when the outcomes do not add up to it: a job was lost.
        """
        return [self._row(task, released.get(task.name, 0)) for task in self._tasks]

    def _row(self, task: Task, released: int) -> Row:
        counts = dict.fromkeys(OUTCOMES, 0)
        counts[MET] = self._met[task.name]
        for (name, outcome, _), count in self.causes.items():
            if name == task.name:
                counts[outcome] += count
        if sum(counts.values()) != released:
            raise InternalError(f"task {task.name!r}: {released} jobs were released, {sum(counts.values())} ended")
        violations = self._violations.get(task.name)
        energy: Row = {"energy_mj": self._mean_energy_mj(task.name)} if self._energy_mj else {}
        weakly_hard: Row = {"violations": None if violations is None else violations.count} if self._violations else {}
        latencies_ns = self._latencies[task.name].percentiles(PERCENTILES.values())
        return {
            "task": task.name,
            "criticality": "train" if task.is_training else task.criticality,
            "released": released,
            **counts,
            "miss_rate": (released - counts[MET]) / released if released else 0.0,
            **{key: None if ns is None else round(ns / 1e6, 4) for key, ns in zip(PERCENTILES, latencies_ns, strict=True)},
            **weakly_hard,
            **energy,
        }

    def _mean_energy_mj(self, name: str) -> float | None:
        total, count = self._energy_mj.get(name, (0.0, 0))
        return round(total / count, 4) if count else None


def tally(workload: Workload, jobs: Iterable[Job]) -> Tally:
    """Of jobs that have all ended."""
    counted = Tally(workload)
    for job in jobs:
        counted.add(job)
    return counted


def task_rows(workload: Workload, jobs: Iterable[Job], released: Mapping[str, int]) -> list[Row]:
    """A row per task over these jobs (see Tally.rows)."""
    return tally(workload, jobs).rows(released)


def with_basis(rows: list[Row], plan: Plan) -> list[Row]:
    """The rows, each with what its task's latencies rest on; as they are where all were measured or stated."""
    basis = {t.task: t.basis for t in plan.tasks}
    if set(basis.values()) <= {"measured", "stated"}:
        return rows
    return [row | {"basis": basis[str(row["task"])]} for row in rows]


def run_document(rows: list[Row], **about: object) -> dict[str, object]:
    """What `run` and `simulate` print as JSON: the rows, and about the run (mode, policy, seconds, device, …)."""
    return {"schema": 1, "edgeengine": edgeengine.__version__, "tasks": rows, **about}
