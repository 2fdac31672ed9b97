"""One line per job as CSV, by release. Jobs come as they end; what memory should not hold is sorted in files (an external merge
sort, Knuth, TAOCP 3, 5.4).
"""

from __future__ import annotations

import csv
import heapq
import io
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from edgeengine.reporting.files import writing
from edgeengine.scheduling import Job

COLUMNS = ("task", "index", "release_ms", "deadline_ms", "start_ms", "finish_ms", "outcome", "cause", "energy_mj")
KEPT = 1 << 16  # lines in memory
MOST_FILES = 64  # open at a time

Line = tuple[int, int, int, str]  # release, task, index: its place; the text


class JobLines:
    """Takes jobs in any order; gives their lines, by release."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._sorted: list[BinaryIO] = []
        self._text = io.StringIO()
        self._writer = csv.writer(self._text, lineterminator="\n")

    def add(self, job: Job) -> None:
        times = (_ms(t) for t in (job.release_ns, job.deadline_ns, job.start_ns, job.finish_ns))
        text = self._csv(job.task.name, job.index, *times, job.outcome, job.cause, _energy(job))
        self._lines.append((job.release_ns, job.task.index, job.index, text))
        if len(self._lines) == KEPT:
            self._spill(sorted(self._lines))
            self._lines = []
            if len(self._sorted) == MOST_FILES:
                merged, self._sorted = self._sorted, []
                self._spill(heapq.merge(*map(_read, merged)))
                for file in merged:
                    file.close()

    def write(self, file: BinaryIO) -> None:
        """The header and all lines. Once."""
        file.write(self._csv(*COLUMNS).encode())
        with ExitStack() as files:
            spilled = [_read(files.enter_context(f)) for f in self._sorted]
            for *_, text in heapq.merge(*spilled, sorted(self._lines)):
                file.write(text.encode())

    def _csv(self, *cells: object) -> str:
        self._writer.writerow(cells)
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text

    def _spill(self, lines: Iterable[Line]) -> None:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (open until it is merged; gone with the process)
        encode = msgspec.json.Encoder().encode
        for line in lines:
            file.write(encode(line) + b"\n")
        file.seek(0)
        self._sorted.append(file)


def _read(file: BinaryIO) -> Iterator[Line]:
    return map(msgspec.json.Decoder(Line).decode, file)


@contextmanager
def writing_jobs(path: Path) -> Iterator[JobLines]:
    """Jobs added in the block are in the file when it is left in order. Raises UserError when it cannot be written."""
    with writing(path) as file:
        lines = JobLines()
        yield lines
        lines.write(file)


def jobs_csv(jobs: Iterable[Job]) -> bytes:
    """One line per job, by release; empty cells where a job has no deadline, no start, or its energy is not known."""
    lines, file = JobLines(), io.BytesIO()
    for job in jobs:
        lines.add(job)
    lines.write(file)
    return file.getvalue()


def _ms(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1e6:.6f}"


def _energy(job: Job) -> str:
    return str(round(job.energy_mj, 6)) if job.finished and job.energy_mj is not None else ""
