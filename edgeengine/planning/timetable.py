"""Timetables: what a simulation of one cycle achieves, every subgraph taking its bound, is kept as fixed starting times.

The simulated policy sees all and may leave a processor idle before an urgent release, which no test of fixed priorities reckons
with. Only for tasks released strictly by their periods from time 0 on, each job due before the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import lcm

import msgspec

from edgeengine.events import Finished, Started
from edgeengine.planning.bounds import Bounds, groups
from edgeengine.scheduling import make_policy
from edgeengine.scheduling.job import MET
from edgeengine.simulation import Simulation, Worst, simulate
from edgeengine.spec import Latency, Plan, Slot, Step, Timetable
from edgeengine.workload import Task, Workload

POLICIES = ("edf", "price", "llf", "least-slack", "heft-reserved", "dm")
LONGEST_CYCLE_NS = 10_000_000_000
MOST_JOBS = 2_000  # in a cycle


def timetable(
    tasks: Sequence[Task], plan: Plan, steps: Mapping[str, tuple[Step, ...]], bounds: Bounds
) -> tuple[Timetable, dict[str, int]] | None:
    """A timetable in which all jobs of `tasks` are met, and each task's latest end after a release; None if none is found.

    `steps` by task are those allowed; of tasks not among `tasks` they run in the gaps.
    """
    if not tasks or not all(_strict(t) for t in tasks):
        return None
    cycle_ns = lcm(*(t.period_ns or 1 for t in tasks))
    if cycle_ns > LONGEST_CYCLE_NS or sum(cycle_ns // (t.period_ns or 1) for t in tasks) > MOST_JOBS:
        return None
    workload = Workload(tuple(msgspec.structs.replace(t, criticality="normal", weakly_hard=None, stale=None) for t in tasks))
    at_bounds = msgspec.structs.replace(
        plan,
        tasks=tuple(
            msgspec.structs.replace(plan.task(t.name), guarantee=None, around=None, steps=_at_bounds(t, steps[t.name], bounds))
            for t in tasks
        ),
        overheads={}, effects=None, guidance=None, timetable=None,
    )  # fmt: skip
    beside = _beside(tasks, steps, bounds)
    for policy in POLICIES:
        done = simulate(workload, at_bounds, make_policy(policy), Worst(), stop_ns=cycle_ns, keep_log=True, track_drift=False)
        if all(j.outcome == MET for j in done.jobs) and _fits_beside(done, groups(plan), beside, cycle_ns):
            begun = [e for line in done.log or () if isinstance(e := line.event, Started)]
            slots = tuple(Slot(e.at_ns, e.task, e.index, e.subgraph, e.processor) for e in begun)
            latest = {t.name: 0 for t in tasks}
            for job in done.jobs:
                latest[job.task.name] = max(latest[job.task.name], (job.finish_ns or 0) - job.release_ns)
            return Timetable(cycle_ns, slots, beside), latest
    return None


def _fits_beside(done: Simulation, group: Mapping[str, int], beside: Mapping[str, int], cycle_ns: int) -> bool:
    """Whether the longest of the other subgraphs has a gap on its processors: none must wait for ever."""
    spans: dict[int, list[tuple[int, int]]] = {}
    started: dict[str, int] = {}
    for line in done.log or ():
        e = line.event
        if isinstance(e, Started):
            started[e.processor] = e.at_ns
        elif isinstance(e, Finished):
            spans.setdefault(group[e.processor], []).append((started[e.processor], e.at_ns))
    for name, ns in beside.items():
        busy = sorted(spans.get(group[name], []))
        following = [start for start, _ in busy[1:]] + [busy[0][0] + cycle_ns] if busy else []
        if busy and max(start - end for (_, end), start in zip(busy, following, strict=True)) < ns:
            return False
    return True


def _strict(task: Task) -> bool:
    """Released at whole multiples of its period, the sooner than any deadline passes; on its own."""
    period = task.period_ns
    deadline = task.relative_deadline_ns
    alone = task.after is None and not task.carry and not task.is_training
    return alone and task.period_ms is not None and not task.jitter_ms and deadline is not None and deadline <= (period or 0)


def _at_bounds(task: Task, steps: Sequence[Step], bounds: Bounds) -> tuple[Step, ...]:
    """Each step takes its bound, and what the timer may be late with its beginning."""
    return tuple(msgspec.structs.replace(s, latency=Latency.constant(bounds.of(task.name, s) + bounds.jitter_ns)) for s in steps)


def _beside(tasks: Sequence[Task], steps: Mapping[str, tuple[Step, ...]], bounds: Bounds) -> dict[str, int]:
    """By processor, the longest subgraph of what runs in the gaps."""
    timed = {t.name for t in tasks}
    longest: dict[str, int] = {}
    for name, allowed in steps.items():
        if name not in timed:
            for step in allowed:
                longest[step.processor] = max(longest.get(step.processor, 0), bounds.of(name, step))
    return longest
