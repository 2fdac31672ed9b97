"""Rows, lines and files of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgeengine.errors import UserError
from edgeengine.reporting import jobs_csv, run_document, task_rows, write_file
from edgeengine.scheduling.policies.fifo import Fifo
from tests.builders import MS, plan, workload
from tests.scheduling.driver import Driver


def test_row_counts_each_end_and_takes_latencies_of_finished_jobs_only() -> None:
    tasks = workload({"name": "t", "deadline_ms": 6, "stale": "queue:1"}, {"name": "idle"}, {"name": "step", "kind": "train"})
    d = Driver(tasks, plan(tasks), Fifo(early_drop=False))
    for took in (1, 2, 9):  # met, met, late
        d.release("t")
        d.finish("p", d.now + took * MS)
    d.release("t")
    d.fail("p")
    d.release("t")
    d.release("t")
    d.release("t")  # rejected
    d.cancel("t", 5)
    d.finish("p", d.now + 4 * MS)
    row, idle, step = task_rows(tasks, list(d.ended.values()), d.scheduler.released)
    assert row == {
        "task": "t", "criticality": "normal", "released": 7, "met": 3, "late": 1, "dropped": 1, "failed": 1, "rejected": 1,
        "miss_rate": 4 / 7, "p50_ms": 4.0, "p90_ms": 9.0, "p99_ms": 9.0, "max_ms": 9.0,
    }  # fmt: skip
    assert (idle["released"], idle["miss_rate"], idle["p50_ms"], idle["max_ms"]) == (0, 0.0, None, None)
    assert step["criticality"] == "train"
    document = run_document([row, idle, step], mode="simulated", policy="fifo")
    assert list(document) == ["schema", "edgeengine", "tasks", "mode", "policy"]


def test_lines_are_by_release_with_empty_cells_for_what_is_not_known() -> None:
    tasks = workload({"name": "b"}, {"name": "a", "deadline_ms": 2.5})
    d = Driver(tasks, plan(tasks), Fifo())
    d.release("a", at=1)
    d.release("b")
    d.cancel("b", 0)
    d.finish("p", 2 * MS)
    assert jobs_csv(list(d.ended.values())).decode().splitlines()[1:] == [
        "b,0,0.000001,,,0.000001,dropped,cancelled,",
        "a,0,0.000001,2.500001,0.000001,2.000000,met,,",
    ]


def test_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "new folder/f.json"
    write_file(file, b"first")
    write_file(file, b"second")
    assert file.read_bytes() == b"second"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match="No space left"):
        write_file(file, b"third")
    assert [f.name for f in file.parent.iterdir()] == ["f.json"]
    assert file.read_bytes() == b"second"


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_file_can_be_read_by_others(tmp_path: Path) -> None:
    write_file(tmp_path / "f", b"")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o644
