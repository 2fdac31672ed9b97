"""One point of a sweep: the workload so set, planned, simulated with several seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from edgeengine.errors import PlanInfeasible
from edgeengine.planning.objectives import xr_scores
from edgeengine.reporting import ensemble_rows, task_rows, with_basis
from edgeengine.reporting.rows import Row
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Simulation, device_of, make_execution_times, simulate
from edgeengine.spec import Plan
from edgeengine.sweeps.space import Point, setting
from edgeengine.workload import Workload
from edgeengine.workload.file import XR

Answer = dict[str, object]
Planner = Callable[[Workload, str | None], Plan]


@dataclass(frozen=True)
class Question:
    """What is asked at every point. `planner` makes the plan for a workload on a device (by name; None: as the workload says);
    it and all else here must be picklable, points are answered in other processes. A point is feasible if no task with a
    deadline, training aside, misses more than `max_miss` of its jobs.
    """

    workload: Workload
    planner: Planner
    device: str | None = None
    policy: str = "edf"
    times: str = "sampled"
    seconds: float = 10.0
    seed: int = 0
    seeds: int = 1
    max_miss: float = 0.0


def answer(question: Question, point: Point) -> Answer:
    """{"point": …, "feasible": …, "tasks": rows}, with the mean "score" of an XRBench scenario; where nothing can run it
    {"point", "feasible": False, "reason", "tasks": []}.

    The same bytes for the same question and point, wherever it is computed. Raises UserError for a point that cannot be set.
    """
    workload = setting(question.workload, point)
    device = point.get("device", question.device)
    try:
        plan = question.planner(workload, None if device is None else str(device))
    except PlanInfeasible as e:
        return {"point": point, "feasible": False, "reason": str(e), "tasks": []}
    policy, times = str(point.get("policy", question.policy)), str(point.get("times", question.times))
    seeds = range(question.seed, question.seed + question.seeds)
    runs = [_seeded(workload, plan, policy, times, question.seconds, seed) for seed in seeds]
    rows = with_basis(ensemble_rows([task_rows(workload, r.jobs, r.released) for r in runs]), plan)
    found: Answer = {"point": point, "feasible": _feasible(workload, rows, question.max_miss), "tasks": rows}
    if workload.path.startswith(XR):
        scores = [xr_scores(r.jobs, question.seconds * 1e3) for r in runs]
        found["score"] = {key: fmean(s[key] for s in scores) for key in scores[0]}
    return found


def _seeded(workload: Workload, plan: Plan, policy: str, times: str, seconds: float, seed: int) -> Simulation:
    """One run, on a device that the seed draws where the plan is not sure of it."""
    execution, plan = make_execution_times(times, seed), device_of(plan, times, seed)
    return simulate(workload, plan, make_policy(policy), execution, stop_ns=round(seconds * 1e9), seed=seed)


def _feasible(workload: Workload, rows: list[Row], max_miss: float) -> bool:
    with_deadline = {t.name for t in workload.tasks if not t.is_training and t.relative_deadline_ns is not None}
    return all(float(r["miss_rate"] or 0) <= max_miss for r in rows if r["task"] in with_deadline)
