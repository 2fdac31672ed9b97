"""The best possible schedule of a small workload, by constraint programming: what an online policy can be held against.

It knows every release beforehand and may leave any job out. Every step of a job is an optional interval on its processor's
resources (no two overlap), the chosen steps of a job form a path from position 0 to its end, and a job counts if that ends by
its deadline. Solved by OR-tools' CP-SAT, imported here only (extra `solve`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgeengine.errors import UserError
from edgeengine.spec import Plan
from edgeengine.workload import Releases, Task, Workload

TICK_NS = 1_000  # the solver counts microseconds; latencies are rounded up


@dataclass(frozen=True)
class Optimum:
    """`value` of the best schedule found and its proved upper `bound` (equal when `proved`); `met` jobs (task, index)."""

    value: float
    bound: float
    proved: bool
    met: frozenset[tuple[str, int]]


def best_schedule(
    workload: Workload,
    plan: Plan,
    *,
    stop_ns: int,
    weight: Callable[[Task], int] = lambda task: 1,
    seconds: float = 10.0,
    seed: int = 0,
) -> Optimum:
    """Maximise the weight of the jobs met, of those with release < `stop_ns`, at p50 latencies. Children (certain ones, without
    a pattern of their own) may start when their parent's job has ended in time.

    Raises UserError without OR-tools.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError as e:
        raise UserError("the exact schedule needs OR-tools: pip install 'edgeengine[solve]'") from e
    model = cp_model.CpModel()
    held: dict[str, list[Any]] = {r: [] for p in plan.processors for r in p.resources}
    jobs: dict[tuple[str, int], _Job] = {}
    for task, index, release_ns in _released(workload, stop_ns):
        jobs[task.name, index] = _Job(model, held, plan, task, release_ns)
    for (name, index), job in jobs.items():
        parent = workload.task(name).after
        if parent is not None and (parent, index) in jobs:
            model.add_implication(job.met, jobs[parent, index].met)
            model.add(job.begin >= jobs[parent, index].end).only_enforce_if(job.met)
    for intervals in held.values():
        model.add_no_overlap(intervals)
    model.maximize(sum(weight(workload.task(name)) * job.met for (name, _), job in jobs.items()))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers, solver.parameters.random_seed = seconds, 1, seed
    status = solver.solve(model)
    met = frozenset(key for key, job in jobs.items() if status != cp_model.UNKNOWN and solver.value(job.met))
    return Optimum(solver.objective_value, solver.best_objective_bound, status == cp_model.OPTIMAL, met)


class _Job:
    """A job's variables: whether it is met, and when it begins and ends."""

    def __init__(self, model: Any, held: dict[str, list[Any]], plan: Plan, task: Task, release_ns: int):
        own = plan.task(task.name)
        release, deadline = -(-release_ns // TICK_NS), (release_ns + (task.relative_deadline_ns or 1 << 50)) // TICK_NS
        self.met = model.new_bool_var("")
        at = [model.new_int_var(release, deadline, "") for _ in range(own.segments + 1)]
        self.begin, self.end = at[0], at[-1]
        taken: dict[int, list[Any]] = {}
        left: dict[int, list[Any]] = {}
        resources = {p.name: p.resources for p in plan.processors}
        for step in own.steps:
            length = -(-step.latency.p50_ns // TICK_NS)
            if release + length > deadline:
                continue
            chosen, start = model.new_bool_var(""), model.new_int_var(release, deadline - length, "")
            interval = model.new_optional_fixed_size_interval_var(start, length, chosen, "")
            for resource in resources[step.processor]:
                held[resource].append(interval)
            model.add(start >= at[step.start]).only_enforce_if(chosen)
            model.add(at[step.stop] >= start + length).only_enforce_if(chosen)
            left.setdefault(step.start, []).append(chosen)
            taken.setdefault(step.stop, []).append(chosen)
        for position in range(own.segments):
            model.add(sum(left.get(position, [])) == (self.met if position == 0 else sum(taken.get(position, []))))
        model.add(sum(taken.get(own.segments, [])) == self.met)


def _released(workload: Workload, stop_ns: int) -> list[tuple[Task, int, int]]:
    """Jobs with a pattern, and their children's with them."""
    found = []
    releases = Releases(workload, stop_ns)
    children: dict[str, list[Task]] = {}
    for task in workload.tasks:
        if task.after is not None and not task.has_pattern:
            children.setdefault(task.after, []).append(task)
    while releases.next_ns is not None:
        release_ns = releases.next_ns
        for name, index in releases.pop():
            family = [workload.task(name)]
            for task in family:
                found.append((task, index, release_ns))
                family += children.get(task.name, [])
    return found
