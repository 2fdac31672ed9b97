"""The fluid limit of a workload on a device: the least peak load, and what a nanosecond of each processor is worth there.

A linear program. Every task sends its jobs as a unit flow through its steps (position 0 to `segments`); a resource's load is the
time that flows through it per second; the largest load is made least. The duals of the load constraints are the prices (Bertsimas
& Tsitsiklis 1997, ch. 4, for duals as prices). scipy is imported here only (extra `solve`); a device reads prices from its plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.spec import Plan, Step, TaskPlan
from edgeengine.workload import Task, Workload


@dataclass(frozen=True)
class Fluid:
    """`load`: 1.0 = the busiest resource is busy all the time. `prices` by processor, at most 1. `left_out`: no way in time."""

    load: float
    prices: dict[str, float]
    left_out: tuple[str, ...]


def rate_hz(workload: Workload, task: Task) -> float:
    """Expected jobs per second; 0 where it is not known."""
    probability = 1.0
    while task.period_ns is None and task.arrivals is None and task.after is not None:
        probability *= task.probability
        task = workload.task(task.after)
    if task.period_ns is not None:
        return probability * 1e9 / task.period_ns
    return probability * (task.arrivals.poisson or 0.0) if task.arrivals is not None else 0.0


def fluid(workload: Workload, plan: Plan, *, within_deadline: bool = True) -> Fluid:
    """Solve it. With `within_deadline` a step is used only if some way through it is no longer than the task's deadline.

    Raises UserError without scipy, PlanInfeasible if no task has a way.
    """
    flows = [(t, rate_hz(workload, t), _steps(t, plan.task(t.name), within_deadline)) for t in workload.tasks]
    left_out = tuple(t.name for t, _, steps in flows if not steps)
    flows = [f for f in flows if f[2] and f[1] > 0]
    if not flows:
        raise PlanInfeasible("no task of a known rate can meet its deadline on any processor")
    resources = sorted({r for p in plan.processors for r in p.resources})
    load, duals = _solve(flows, plan, resources)
    value = dict(zip(resources, duals, strict=True))
    return Fluid(load, {p.name: sum(value[r] for r in p.resources) for p in plan.processors}, left_out)


def _steps(task: Task, plan: TaskPlan, within_deadline: bool) -> Sequence[Step]:
    far = 1 << 62
    before, behind = [0] + [far] * plan.segments, [far] * plan.segments + [0]
    for step in sorted(plan.steps, key=lambda s: s.start):
        before[step.stop] = min(before[step.stop], before[step.start] + step.latency.p50_ns)
    for step in sorted(plan.steps, key=lambda s: -s.start):
        behind[step.start] = min(behind[step.start], behind[step.stop] + step.latency.p50_ns)
    deadline = task.relative_deadline_ns
    most = far - 1 if deadline is None or not within_deadline else deadline
    return [s for s in plan.steps if before[s.start] + s.latency.p50_ns + behind[s.stop] <= most]


def _solve(
    flows: Sequence[tuple[Task, float, Sequence[Step]]], plan: Plan, resources: Sequence[str]
) -> tuple[float, list[float]]:
    try:
        from scipy.optimize import linprog
        from scipy.sparse import lil_array
    except ImportError as e:
        raise UserError("prices need scipy: pip install 'edgeengine[solve]'") from e
    held = {p.name: p.resources for p in plan.processors}
    row = {r: i for i, r in enumerate(resources)}
    columns = [(t, rate, s) for t, rate, steps in flows for s in steps]
    nodes = {
        (t.name, at): i for i, (t, at) in enumerate((t, at) for t, _, _ in flows for at in range(plan.task(t.name).segments))
    }
    load, conserved = lil_array((len(resources), len(columns) + 1)), lil_array((len(nodes), len(columns) + 1))
    for c, (task, rate, step) in enumerate(columns):
        for resource in held[step.processor]:
            load[row[resource], c] = rate * step.latency.p50_ns / 1e9
        conserved[nodes[task.name, step.start], c] = 1
        if (task.name, step.stop) in nodes:
            conserved[nodes[task.name, step.stop], c] = -1
    load[:, len(columns)] = -1
    unit = [1.0 if at == 0 else 0.0 for _, at in nodes]
    cost = [0.0] * len(columns) + [1.0]
    found = linprog(cost, A_ub=load.tocsr(), b_ub=[0.0] * len(resources), A_eq=conserved.tocsr(), b_eq=unit, method="highs")
    if found.status != 0:
        raise PlanInfeasible(f"the load program was not solved ({found.message})")
    return float(found.fun), [max(-float(d), 0.0) for d in found.ineqlin.marginals]
