"""What-ifs: the workload is simulated under candidate settings of the price policy, and under other policies; the best is kept.

The seeds are its own: a what-if never sees the draws of the run it prepares. Where every latency is a constant and no child has a
probability, the simulation is what will run, so the choice can lose to no candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

import msgspec

from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.planning.objectives import Objective, on_time
from edgeengine.planning.prices import fluid
from edgeengine.scheduling import Job, Scheduler
from edgeengine.scheduling.guide import Guide, usual_horizon_ns, usual_margin_ns
from edgeengine.scheduling.job import MET
from edgeengine.scheduling.policies.price import Price
from edgeengine.simulation import ExecutionTimes, Median, Sampled, simulate
from edgeengine.spec import Guidance, Plan
from edgeengine.workload import Workload

SEED = 7_919  # of the what-ifs' own draws
SLACK_WEIGHT = 1e-4  # of equals the one that leaves more time before deadlines: it bears draws that were not tried
RUNS = 3  # per candidate, where anything is drawn
FINALISTS, FINAL_RUNS = 5, 12  # of the settings and as many of the portfolio, each over so many runs at first
FEW_TASKS = 3  # all their orders are tried
MOST_TRIALS = 60
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"order": "latency"},
    {"order": "latency", "earliest": True, "reserve": False},
    {"reserve": False},
    {"order": "balanced"},
)  # fmt: skip
MARGINS = (1.0, 0.66, 0.33, 0.16)  # of the guide's own
HORIZONS = (1.0, 2.0)
TAILS = ((1.0, 0.0, 0.0), (1.0, 0.2, 0.0), (1.0, 0.7, 0.0), (1.0, 1.0, 0.0))
PORTFOLIO = (
    ("heft", "overdue"),
    ("heft-reserved", "overdue"),
    ("fixed-worker", "overdue"),
    ("fixed-balanced", "overdue"),
    ("least-slack", "never"), ("least-slack", "overdue"), ("fixed-worker", "hopeless"), ("fixed-balanced", "hopeless"),
    ("heft", "hopeless"), ("heft-reserved", "hopeless"), ("shortest-expected-latency", "hopeless"), ("sjf", "hopeless"),
    ("global-edf", "hopeless"), ("rm", "hopeless"), ("llf", "hopeless"), ("xrbench", "hopeless"), ("lalarand", "hopeless"),
    ("mapscore", "hopeless"), ("round-robin", "hopeless"), ("edf", ""),
)  # fmt: skip


class WhatIf:
    """Simulates candidates for one workload and plan, each with each seed once."""

    def __init__(self, workload: Workload, plan: Plan, objective: Objective, window_ns: int):
        self._workload, self._plan, self._objective, self._window_ns = workload, plan, objective, window_ns
        self.constant = all(s.latency.n == 1 for t in plan.tasks for s in t.steps)
        self.certain = self.constant and all(t.probability >= 1 for t in workload.tasks)
        self._known: dict[bytes, tuple[Guidance, list[float]]] = {}

    @property
    def trials(self) -> int:
        return len(self._known)

    def value(self, guidance: Guidance, runs: int = RUNS) -> float:
        """The objective, averaged over so many of the what-if's own seeds; over one where nothing is drawn."""
        _, known = self._known.setdefault(msgspec.json.encode(guidance), (guidance, []))
        runs = 1 if self.certain else runs
        while len(known) < runs:
            known.append(self._run(guidance, SEED + len(known)))
        return sum(known[:runs]) / runs

    def best(self, count: int, portfolio: bool) -> list[Guidance]:
        """The most promising so far, settings or other policies, best first; of equals the earlier."""
        known = [g for g, _ in self._known.values() if bool(g.policy) == portfolio]
        return sorted(known, key=lambda g: -self.value(g))[:count]

    def _run(self, guidance: Guidance, seed: int) -> float:
        plan = msgspec.structs.replace(self._plan, guidance=guidance)
        times: ExecutionTimes = Median() if self.constant else Sampled(seed)
        done = simulate(self._workload, plan, Price(), times, stop_ns=self._window_ns, seed=seed)
        slack = [(j.deadline_ns - j.finish_ns) / (j.deadline_ns - j.release_ns) for j in done.jobs if _met_in(j)]  # type: ignore[operator]
        return self._objective(self._workload, done.jobs) * (1 + SLACK_WEIGHT * sum(slack) / max(len(slack), 1))


def advise(
    workload: Workload,
    plan: Plan,
    *,
    objective: Objective = on_time,
    window_ns: int = 1_000_000_000,
    most_trials: int = MOST_TRIALS,
) -> Guidance:
    """The guidance to store in the plan. Without scipy all prices are equal; the what-ifs are the same.

    A search over settings with few runs each, the portfolio beside it; the best of both are then compared by
    successive halving (Karnin, Koren & Somekh 2013).
    """
    what_if = WhatIf(workload, plan, objective, window_ns)
    most_trials = most_trials if what_if.certain else most_trials // 2
    # Where latencies are constants a margin only costs: it may forbid the one processor that is just fast enough.
    best = base = Guidance(prices=_prices(workload, plan), margin_ns=0 if what_if.constant else None)
    for variant in VARIANTS:
        best = _better(what_if, best, msgspec.structs.replace(base, **variant))
    for rank in _ranks(workload, plan, best):
        if what_if.trials < most_trials // 2:
            best = _better(what_if, best, msgspec.structs.replace(best, rank=rank))
    improved = True
    while improved and what_if.trials < most_trials:
        improved = False
        for trial in _neighbours(workload, plan, best):
            if what_if.trials >= most_trials:
                break
            found = _better(what_if, best, trial)
            if found is not best:
                best, improved = found, True
                break
    for name, drop in PORTFOLIO:
        what_if.value(Guidance(policy=name, drop=drop))
    finalists = what_if.best(FINALISTS, portfolio=False) + what_if.best(FINALISTS, portfolio=True)
    runs = FINAL_RUNS
    while len(finalists) > 1:  # half of them, twice the runs, until one is left
        finalists = sorted(finalists, key=lambda g: -what_if.value(g, runs))[: len(finalists) // 2]
        runs *= 2
    return finalists[0]


def _met_in(job: Job) -> bool:
    """Met, with a deadline after its release."""
    return job.outcome == MET and job.deadline_ns is not None and job.deadline_ns > job.release_ns


def _better(what_if: WhatIf, best: Guidance, trial: Guidance) -> Guidance:
    """The trial if it is truly better: of equals the earlier stays."""
    return trial if what_if.value(trial) > what_if.value(best) * (1 + 1e-9) else best


def _prices(workload: Workload, plan: Plan) -> dict[str, float]:
    try:
        return fluid(workload, plan).prices
    except (PlanInfeasible, UserError):
        return {}


def _ranks(workload: Workload, plan: Plan, base: Guidance) -> Iterator[tuple[str, ...]]:
    """Orders worth a try: few tasks in every order, else each task moved to the front and to the end."""
    usual = _usual_rank(workload, plan, base)
    if len(usual) <= FEW_TASKS:
        yield from (r for r in permutations(usual) if _in_order(workload, r))
        return
    for name in usual:
        rest = [n for n in usual if n != name]
        yield from (r for r in ((*rest, name), (name, *rest)) if _in_order(workload, r))


def _usual_rank(workload: Workload, plan: Plan, guidance: Guidance) -> tuple[str, ...]:
    """What the price policy would go by with this guidance."""
    view = Scheduler(workload, msgspec.structs.replace(plan, guidance=guidance), Price()).view
    return tuple(task.name for task in Guide(view).rank)


def _in_order(workload: Workload, rank: Sequence[str]) -> bool:
    """Parents come before their children."""
    place = {name: i for i, name in enumerate(rank)}
    return all(t.after is None or place.get(t.after, -1) < place.get(t.name, 0) for t in workload.tasks)


def _neighbours(workload: Workload, plan: Plan, best: Guidance) -> Iterator[Guidance]:
    """Two tasks exchanged, another variant, another margin or horizon, other tails where latencies vary."""
    deadlines = [t.relative_deadline_ns for t in workload.tasks if t.relative_deadline_ns is not None]
    margin, horizon = usual_margin_ns(deadlines), usual_horizon_ns(deadlines)
    if any(s.latency.n > 1 for t in plan.tasks for s in t.steps):
        yield from (msgspec.structs.replace(best, tail=tail) for tail in TAILS)
    yield from (msgspec.structs.replace(best, horizon_ns=round(h * horizon)) for h in HORIZONS)
    yield from (msgspec.structs.replace(best, margin_ns=round(m * margin)) for m in MARGINS)
    rank = _usual_rank(workload, plan, best)
    for a, b in combinations(range(len(rank)), 2):
        swapped = list(rank)
        swapped[a], swapped[b] = rank[b], rank[a]
        if _in_order(workload, swapped):
            yield msgspec.structs.replace(best, rank=tuple(swapped))
    yield from (msgspec.structs.replace(best, **variant) for variant in VARIANTS)
