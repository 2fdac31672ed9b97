"""Files of a run: one line per job as CSV; a folder with everything needed to look at the run again."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgeengine.errors import UserError
from edgeengine.events import LogLine, dump_log
from edgeengine.profiling import export_json
from edgeengine.scheduling import Job
from edgeengine.spec import MachineRow, Plan, ProfileRow

COLUMNS = ("task", "index", "release_ms", "deadline_ms", "start_ms", "finish_ms", "outcome", "cause", "energy_mj")


def jobs_csv(jobs: Sequence[Job]) -> bytes:
    """One line per job, by release; empty cells where a job has no deadline, no start, or its energy is not known."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for j in sorted(jobs, key=lambda j: (j.release_ns, j.task.index, j.index)):
        times = (_ms(t) for t in (j.release_ns, j.deadline_ns, j.start_ns, j.finish_ns))
        writer.writerow([j.task.name, j.index, *times, j.outcome, j.cause, _energy(j)])
    return text.getvalue().encode()


def _ms(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1e6:.6f}"


def _energy(job: Job) -> str:
    """Only a stated energy is known so far; by processor, it is that of the one that ran the last subgraph."""
    stated = job.task.spec.energy_mj
    if stated is None or not job.finished:
        return ""
    if isinstance(stated, dict):
        ran_on = job.last_processor.name if job.last_processor is not None else ""
        return str(stated.get(ran_on, ""))
    return str(stated)


def write_file(path: Path, data: bytes) -> None:
    """Write aside, then rename: the file is there whole or not at all. Raises UserError when it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            Path(aside).chmod(0o644)
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
    except OSError as e:
        raise UserError(f"{path}: cannot write it ({e.strerror}); give another place") from e


def write_run_folder(
    folder: Path,
    *,
    document: dict[str, object],
    plan: Plan,
    log: Sequence[LogLine],
    jobs: Sequence[Job],
    rows: list[ProfileRow],
    machine: list[MachineRow],
) -> None:
    """events.jsonl, plan.json, profile.json (the rows used), jobs.csv, result.json."""
    write_file(folder / "events.jsonl", dump_log(list(log)))
    write_file(folder / "plan.json", msgspec.json.format(msgspec.json.encode(plan), indent=1))
    write_file(folder / "profile.json", export_json(rows, machine)[0])
    write_file(folder / "jobs.csv", jobs_csv(jobs))
    write_file(folder / "result.json", msgspec.json.format(msgspec.json.encode(document), indent=1))
