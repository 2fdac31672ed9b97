"""Lines of jobs that memory does not hold."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from edgeengine.errors import UserError
from edgeengine.reporting import job_lines, jobs_csv, writing_jobs
from edgeengine.scheduling import Job, make_policy
from edgeengine.simulation import Median, simulate
from tests.builders import MS, plan, workload


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    tasks = workload(
        {"name": 'comma, "quote"\nand line', "period_ms": 3, "latency_ms": {"p": 1}},
        {"name": "b", "arrivals": {"poisson": 300}, "deadline_ms": 2, "latency_ms": {"p": 1.5}},
    )
    return simulate(tasks, plan(tasks), make_policy("edf"), Median(), stop_ns=1000 * MS).jobs


@pytest.mark.parametrize(("kept", "files"), [(1, 2), (7, 3), (50, 64)])
def test_sorted_in_files_is_sorted_in_memory(jobs: list[Job], kept: int, files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled = random.Random(1).sample(jobs, len(jobs))
    whole = jobs_csv(jobs)
    monkeypatch.setattr(job_lines, "KEPT", kept)
    monkeypatch.setattr(job_lines, "MOST_FILES", files)
    assert jobs_csv(shuffled) == whole


def test_block_left_by_a_fault_leaves_no_file(jobs: list[Job], tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("before")
    with pytest.raises(ZeroDivisionError), writing_jobs(tmp_path / "jobs.csv") as lines:
        lines.add(jobs[0])
        raise ZeroDivisionError
    assert [f.name for f in tmp_path.iterdir()] == ["jobs.csv"] and (tmp_path / "jobs.csv").read_text() == "before"
    with pytest.raises(UserError, match="cannot write"), writing_jobs(tmp_path / "jobs.csv" / "x"):
        pass
