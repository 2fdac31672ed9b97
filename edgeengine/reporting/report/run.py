"""A run read back from its folder: what ran where from when to when, and how each job ended."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from edgeengine.errors import UserError
from edgeengine.events import Drop, Failed, Finished, LogLine, Reject, Started, load_log
from edgeengine.spec import Plan

MET, LATE = "met", "late"


@dataclass(frozen=True)
class Span:
    """One subgraph on one processor. `outcome` is "done", "cancelled" or "failed"."""

    processor: str
    task: str
    index: int
    subgraph: str
    start_ns: int
    end_ns: int
    outcome: str = "done"


@dataclass
class JobRecord:
    """One job. `end_ns` is when it finished, or was given up."""

    task: str
    index: int
    release_ns: int
    deadline_ns: int | None
    outcome: str
    cause: str
    end_ns: int
    spans: list[Span] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        return self.outcome in (MET, LATE)


@dataclass
class Run:
    """`document` is what the command printed (rows by task, and about the run)."""

    document: dict[str, Any]
    plan: Plan
    jobs: list[JobRecord]
    spans: list[Span]

    @property
    def missed(self) -> list[JobRecord]:
        return [j for j in self.jobs if j.outcome != MET]

    @property
    def end_ns(self) -> int:
        return max([s.end_ns for s in self.spans] + [j.end_ns for j in self.jobs], default=0)


def load_run(folder: Path) -> Run:
    """Read a folder that `run` or `simulate` wrote with -o. Raises UserError for a file that is missing or not of a run."""
    try:
        document = msgspec.json.decode((folder / "result.json").read_bytes())
        plan = msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)
        log = load_log((folder / "events.jsonl").read_bytes())
        with (folder / "jobs.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
        given_up = dict(_given_up(log))
        jobs = [_job(row, given_up) for row in table]
    except OSError as e:
        where = f"{e.filename}: cannot be read ({e.strerror})"
        raise UserError(f"{where}; give the folder that 'run -o' or 'simulate -o' wrote") from e
    except (msgspec.DecodeError, KeyError, ValueError) as e:
        raise UserError(f"{folder}: not the folder of a run ({e})") from e
    spans = list(_spans(log))
    by_job = {(j.task, j.index): j for j in jobs}
    for span in spans:
        if (span.task, span.index) in by_job:
            by_job[span.task, span.index].spans.append(span)
    return Run(document, plan, jobs, spans)


def _spans(log: list[LogLine]) -> Iterator[Span]:
    started: dict[tuple[str, int], Started] = {}
    for line in log:
        event = line.event
        if isinstance(event, Started):
            started[event.task, event.index] = event
        elif isinstance(event, Finished | Failed):
            begun = started.pop((event.task, event.index), None)
            if begun is not None:
                outcome = event.outcome if isinstance(event, Finished) else "failed"
                yield Span(
                    event.processor, event.task, event.index, event.subgraph, begun.at_ns, event.at_ns, outcome
                )  # fmt: skip


def _given_up(log: list[LogLine]) -> Iterator[tuple[tuple[str, int], int]]:
    for line in log:
        for action in line.actions:
            if isinstance(action, Drop | Reject):
                yield (action.task, action.index), line.event.at_ns


def _job(row: dict[str, str], given_up: dict[tuple[str, int], int]) -> JobRecord:
    task, index, release_ns = row["task"], int(row["index"]), _ns(row["release_ms"]) or 0
    finish_ns = _ns(row["finish_ms"])
    end_ns = finish_ns if finish_ns is not None else given_up.get((task, index), release_ns)
    return JobRecord(task, index, release_ns, _ns(row["deadline_ms"]), row["outcome"], row["cause"], end_ns)


def _ns(text: str) -> int | None:
    return round(float(text) * 1e6) if text else None
