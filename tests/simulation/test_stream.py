"""A streamed run is the run that is kept, and takes no more memory however long it goes on."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from edgeengine.events import LogLine, dump_log
from edgeengine.reporting import Tally, job_lines, jobs_csv, latencies, task_rows, writing_run
from edgeengine.scheduling import Job, make_policy
from edgeengine.simulation import Sampled, simulate, stream
from edgeengine.spec import Plan
from edgeengine.workload import Workload
from tests.builders import MS, plan, workload
from tests.simulation.test_simulator import spread

TASKS = workload(
    {"name": "camera", "period_ms": 10, "latency_ms": {"npu": 3, "cpu": 5}, "segments": 2, "criticality": "high"},
    {"name": "pose", "after": "camera", "probability": 0.7, "latency_ms": {"npu": 2, "cpu": 4}},
    {"name": "noise", "arrivals": {"poisson": 90}, "deadline_ms": 12, "latency_ms": {"cpu": 6}, "stale": "queue:2"},
    {"name": "tune", "kind": "train", "latency_ms": {"cpu": 4}, "segments": 2},
)  # fmt: skip


@pytest.fixture(scope="module")
def planned() -> Plan:
    return spread(plan(TASKS))


def run(tasks: Workload, made: Plan, seconds: float, folder: Path) -> Tally:
    counted = Tally(tasks)
    with writing_run(folder) as files:

        def ended(job: Job) -> None:
            counted.add(job)
            files.end(job)

        edf = make_policy("edf")
        done = stream(tasks, made, edf, Sampled(1), stop_ns=round(seconds * 1e3) * MS, ended=ended, record=files.step)
        files.conclude({"tasks": counted.rows(done.released)}, made, [], [])
    return counted


def test_streamed_run_is_the_kept_one(planned: Plan, tmp_path: Path) -> None:
    log: list[LogLine] = []
    jobs: list[Job] = []
    streamed = stream(
        TASKS, planned, make_policy("edf"), Sampled(1), stop_ns=1000 * MS, ended=jobs.append, record=log.append
    )  # fmt: skip
    kept = simulate(TASKS, planned, make_policy("edf"), Sampled(1), stop_ns=1000 * MS, keep_log=True)
    assert (streamed.released, streamed.end_ns, streamed.jobs) == (kept.released, kept.end_ns, [])
    assert dump_log(log) == dump_log(kept.log or []) and jobs_csv(jobs) == jobs_csv(kept.jobs)
    counted = run(TASKS, planned, 1.0, tmp_path)
    assert counted.rows(kept.released) == task_rows(TASKS, kept.jobs, kept.released)
    assert (tmp_path / "events.jsonl").read_bytes() == dump_log(log)
    assert (tmp_path / "jobs.csv").read_bytes() == jobs_csv(jobs)


def test_memory_does_not_grow_with_the_horizon(planned: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks of allocation; the bounds of what is kept in memory are set low, so that short runs reach them."""
    monkeypatch.setattr(latencies, "EXACT", 100)
    monkeypatch.setattr(latencies, "BITS", 5)
    monkeypatch.setattr(job_lines, "KEPT", 100)
    monkeypatch.setattr(job_lines, "MOST_FILES", 4)
    run(TASKS, planned, 2.0, tmp_path / "first")  # caches are filled

    def peak(seconds: float) -> int:
        tracemalloc.start()
        try:
            run(TASKS, planned, seconds, tmp_path / "run")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(20.0) < 1.2 * peak(2.0)
