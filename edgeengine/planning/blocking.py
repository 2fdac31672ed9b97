"""Non-preemptive blocking: what a less critical subgraph may hold, and for how long, without making a more critical job late.

A subgraph is not interrupted. If it holds resources without which a more critical task cannot start anywhere, its p99 must fit
into that task's slack (deadline - its own p99).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeengine.scheduling.job import RANK, TRAIN_RANK
from edgeengine.spec import Latency, Processor
from edgeengine.workload import Task


@dataclass(frozen=True)
class Tolerance:
    """What one task tolerates: it can start on `processors`; a blocking of `slack_ns` there does not make it late."""

    task: str
    rank: int
    processors: tuple[Processor, ...]
    slack_ns: int


def rank(task: Task) -> int:
    return TRAIN_RANK if task.is_training else RANK[task.criticality]


def tolerance(task: Task, whole: dict[str, Latency], processors: Sequence[Processor]) -> Tolerance | None:
    """None for a task without a deadline. `whole`: latency of its whole model by processor."""
    usable = tuple(p for p in processors if p.name in whole)
    if task.relative_deadline_ns is None or not usable:
        return None
    fastest = min(whole[p.name].p99_ns for p in usable)
    return Tolerance(task.name, rank(task), usable, max(task.relative_deadline_ns - fastest, 0))


def blocked(of_rank: int, held: Processor, p99_ns: int, tolerances: Sequence[Tolerance]) -> str:
    """Name of a more critical task that a subgraph of `p99_ns` on `held` could make late; "" if none."""
    for t in tolerances:
        if t.rank < of_rank and p99_ns > t.slack_ns and all(held.conflicts(p) for p in t.processors):
            return t.task
    return ""
