"""One point of a sweep: the workload so set, planned, simulated with several seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from edgeengine.errors import PlanInfeasible
from edgeengine.planning.objectives import XrScores
from edgeengine.reporting import Tally, ensemble_rows, with_basis
from edgeengine.reporting.rows import Row
from edgeengine.scheduling import Job, make_policy
from edgeengine.simulation import device_of, make_execution_times, stream
from edgeengine.spec import Plan
from edgeengine.sweeps.space import Point, setting
from edgeengine.workload import Workload
from edgeengine.workload.published import XR

Answer = dict[str, object]
Planner = Callable[[Workload, str | None], tuple[Workload, Plan]]


@dataclass(frozen=True)
class Question:
    """What is asked at every point. `planner` makes the plan for a workload on a device (by name; None: as the workload says),
    and gives the workload as it is there (the latencies of a published one are the device's); it and all else here must be
    picklable, points are answered in other processes. `devices` identifies what is known of the devices asked about, so that
    answers kept in a file are not taken for those of others. A point is feasible if no task with a deadline, training aside,
    misses more than `max_miss` of its jobs.
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
    devices: str = ""


def answer(question: Question, point: Point) -> Answer:
    """{"point": …, "feasible": …, "tasks": rows}, with the mean "score" of an XRBench scenario; where nothing can run it
    {"point", "feasible": False, "reason", "tasks": []}.

    The same bytes for the same question and point, wherever it is computed. Raises UserError for a point that cannot be set.
    """
    workload = setting(question.workload, point)
    device = point.get("device", question.device)
    try:
        workload, plan = question.planner(workload, None if device is None else str(device))
    except PlanInfeasible as e:
        return {"point": point, "feasible": False, "reason": str(e), "tasks": []}
    policy, times = str(point.get("policy", question.policy)), str(point.get("times", question.times))
    seeds = range(question.seed, question.seed + question.seeds)
    runs = [_seeded(workload, plan, policy, times, question.seconds, seed) for seed in seeds]
    rows = with_basis(ensemble_rows([of_run for of_run, _ in runs]), plan)
    found: Answer = {"point": point, "feasible": _feasible(workload, rows, question.max_miss), "tasks": rows}
    if workload.path.startswith(XR):
        found["score"] = {key: fmean(scores[key] for _, scores in runs) for key in runs[0][1]}
    return found


def _seeded(
    workload: Workload, plan: Plan, policy: str, times: str, seconds: float, seed: int
) -> tuple[list[Row], dict[str, float]]:
    """The rows of one run, on a device that the seed draws where the plan is not sure of it, and an XRBench scenario's scores."""
    counted = Tally(workload)
    scores = XrScores(seconds * 1e3) if workload.path.startswith(XR) else None

    def ended(job: Job) -> None:
        counted.add(job)
        if scores is not None:
            scores.add(job)

    done = stream(
        workload, device_of(plan, times, seed), make_policy(policy), make_execution_times(times, seed),
        stop_ns=round(seconds * 1e9), seed=seed, ended=ended,
    )  # fmt: skip
    return counted.rows(done.released), scores.values if scores is not None else {}


def _feasible(workload: Workload, rows: list[Row], max_miss: float) -> bool:
    with_deadline = {t.name for t in workload.tasks if not t.is_training and t.relative_deadline_ns is not None}
    return all(float(r["miss_rate"] or 0) <= max_miss for r in rows if r["task"] in with_deadline)
