"""A folder with everything needed to look at a run again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from edgeengine.events import LogLine, dump_log
from edgeengine.profiling import export_json
from edgeengine.reporting.files import write_file, writing
from edgeengine.reporting.job_lines import JobLines, writing_jobs
from edgeengine.scheduling import Job
from edgeengine.spec import MachineRow, Plan, ProfileRow


@dataclass
class RunFolder:
    """events.jsonl and jobs.csv, written as the run goes; plan.json, profile.json (the rows used) and result.json at its end."""

    path: Path
    events: BinaryIO
    jobs: JobLines

    def step(self, line: LogLine) -> None:
        self.events.write(dump_log((line,)))

    def end(self, job: Job) -> None:
        self.jobs.add(job)

    def conclude(self, document: dict[str, object], plan: Plan, rows: list[ProfileRow], machine: list[MachineRow]) -> None:
        write_file(self.path / "plan.json", msgspec.json.format(msgspec.json.encode(plan), indent=1))
        write_file(self.path / "profile.json", export_json(rows, machine)[0])
        write_file(self.path / "result.json", msgspec.json.format(msgspec.json.encode(document), indent=1))


@contextmanager
def writing_run(folder: Path) -> Iterator[RunFolder]:
    """Raises UserError when it cannot be written; a block that is not left in order leaves no half file."""
    with writing(folder / "events.jsonl") as events, writing_jobs(folder / "jobs.csv") as jobs:
        yield RunFolder(folder, events, jobs)


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
    """The folder of a run that is over."""
    with writing_run(folder) as run:
        for line in log:
            run.step(line)
        for job in jobs:
            run.end(job)
        run.conclude(document, plan, rows, machine)
