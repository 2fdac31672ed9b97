"""Non-preemptive blocking: what a less critical subgraph may hold, and for how long, without making a more critical job late.

A subgraph is not interrupted. If it holds resources without which a more critical task cannot start anywhere, its p99 must fit
into that task's slack (deadline - its own p99).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgeengine.profiling import Candidate
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
    # A processor on which it would be late is no place to start.
    usable = tuple(p for p in usable if whole[p.name].p50_ns <= task.relative_deadline_ns) or usable
    fastest = min(whole[p.name].p99_ns for p in usable)
    return Tolerance(task.name, rank(task), usable, max(task.relative_deadline_ns - fastest, 0))


def victims(of_rank: int, held: Processor, tolerances: Sequence[Tolerance]) -> list[Tolerance]:
    """The more critical tasks that can start nowhere while a task of `of_rank` holds `held`."""
    return [t for t in tolerances if t.rank < of_rank and all(held.conflicts(p) for p in t.processors)]


def tiers(
    task: Task, candidates: Sequence[Candidate], latency: Mapping[tuple[str, str], Latency], tolerances: Sequence[Tolerance]
) -> list[tuple[list[Candidate], str]]:
    """What the task may use, best first, each with a word of warning.

    First only what leaves every more critical task a processor: a p99 does not hold while another program takes the core. Where
    that cannot be (one core), what is short enough; and where even that cannot be, everything.
    """
    own = rank(task)
    hurt = {i: victims(own, c.processor, tolerances) for i, c in enumerate(candidates)}
    free = [c for i, c in enumerate(candidates) if not hurt[i]]
    short = [
        c
        for i, c in enumerate(candidates)
        if all(latency[c.subgraph.name, c.processor.name].p99_ns <= t.slack_ns for t in hurt[i])
    ]
    late = sorted({t.task for found in hurt.values() for t in found})
    advice = f"may make {', '.join(late)} late: cut it into shorter parts ('edgeengine split --parts N')"
    return [(free, ""), (short, ""), (list(candidates), advice)]
