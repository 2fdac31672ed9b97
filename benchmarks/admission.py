"""Schedulability: the share of random task sets that admission guarantees, beside two known ways to place them.

    python -m benchmarks.admission [--sets N]

UUniFast sets (Bini & Buttazzo 2005): six tasks of four subgraphs, periods from {10, 20, 25, 40, 50, 100} ms, load of the CPU
alone .1 to 2.0; a subgraph is 2 to 8 times faster on the GPU, one in four runs on the CPU only. Baselines, by the same
response-time test: rate monotonic with each subgraph where it is fastest (LaLaRAND's runtime), and every model whole on one
processor, the best of all such placements. What ours accepts is then simulated at the bound and up to it; a miss is an error.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

from joblib import Parallel, delayed

from edgeengine.planning import plan_from_latencies
from edgeengine.planning.admission import admit
from edgeengine.planning.bounds import groups
from edgeengine.planning.response_time import Chain, Stage, analyse
from edgeengine.scheduling import make_policy
from edgeengine.simulation import ExecutionTimes, simulate
from edgeengine.spec import Latency, Plan, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload

RESULTS = Path(__file__).with_name("results") / "admission.json"
PERIODS_MS = (10.0, 20.0, 25.0, 40.0, 50.0, 100.0)
TASKS, SUBGRAPHS = 6, 4
UTILISATIONS = tuple(round(0.1 * i, 1) for i in range(1, 21))
HYPERPERIOD_NS = 200_000_000
HYPERPERIODS = 3  # simulated of each accepted set, under each of two policies: one at the bound, the others up to it


def task_set(seed: int, utilisation: float) -> tuple[Workload, Plan]:
    rng = random.Random(f"{seed}:{utilisation}")
    tasks, plans = [], []
    for i, share in enumerate(uunifast(rng, TASKS, utilisation)):
        period = rng.choice(PERIODS_MS)
        parts = uunifast(rng, SUBGRAPHS, share * period)
        steps = []
        for n, ms in enumerate(parts):
            cpu = max(round(ms * 1e6), 1)
            steps.append(Step(f"s{n}", n, n + 1, "cpu", Latency.constant(cpu)))
            faster = rng.uniform(2, 8)
            if rng.random() >= 0.25:
                steps.append(Step(f"s{n}", n, n + 1, "gpu", Latency.constant(max(round(cpu / faster), 1))))
        tasks.append(Task(name=f"t{i}", period_ms=period, latency_ms={"cpu": 1.0, "gpu": 1.0}, segments=SUBGRAPHS))
        plans.append(TaskPlan(task=f"t{i}", bundle="", segments=SUBGRAPHS, steps=tuple(steps)))
    workload = Workload(tuple(tasks))
    return workload, Plan(SCHEMA, "described", "", plan_from_latencies(workload).processors, tuple(plans))


def uunifast(rng: random.Random, count: int, total: float) -> list[float]:
    """`count` positive shares that add up to `total`, uniformly."""
    shares, left = [], total
    for i in range(1, count):
        following = left * rng.random() ** (1 / (count - i))
        shares.append(left - following)
        left = following
    return [*shares, left]


def accepts(workload: Workload, plan: Plan, routes: Sequence[Sequence[Step]]) -> bool:
    """Rate monotonic on these routes."""
    group = groups(plan)
    chains = [_chain(t, route, group) for t, route in zip(workload.tasks, routes, strict=True)]
    return len(analyse(sorted(chains, key=lambda c: c.period_ns), {})) == len(chains)


def _chain(task: Task, route: Sequence[Step], group: dict[str, int]) -> Chain:
    stages: list[Stage] = []
    for step in route:
        ns, g = step.latency.p99_ns, group[step.processor]
        if stages and stages[-1].group == g:
            stages[-1] = Stage(g, stages[-1].total_ns + ns, max(stages[-1].longest_ns, ns), ns)
        else:
            stages.append(Stage(g, ns, ns, ns))
    assert task.period_ns is not None
    return Chain(task.name, task.period_ns, task.period_ns, tuple(stages))


def per_layer(workload: Workload, plan: Plan) -> bool:
    routes = [
        [min((s for s in t.steps if s.start == n), key=lambda s: s.latency.p99_ns) for n in range(SUBGRAPHS)] for t in plan.tasks
    ]
    return accepts(workload, plan, routes)


def per_model(workload: Workload, plan: Plan) -> bool:
    wholes = [[r for p in ("cpu", "gpu") if len(r := [s for s in t.steps if s.processor == p]) == SUBGRAPHS] for t in plan.tasks]
    return any(accepts(workload, plan, routes) for routes in product(*wholes))


class AtTheBound:
    def of(self, latency: Latency) -> int:
        return latency.p99_ns


class UpToTheBound:
    """Anything up to it: who ends early lets others start where they would not have, which must not harm either."""

    def __init__(self, seed: int):
        self._rng = random.Random(seed)

    def of(self, latency: Latency) -> int:
        return self._rng.randint(max(latency.p99_ns // 5, 1), latency.p99_ns)


def ours(workload: Workload, plan: Plan) -> bool:
    admitted = admit(workload, plan, margin=1.0)
    if any(t.verdict != "guaranteed" for t in admitted.tasks):
        return False
    for policy in ("edf", "price"):
        runs: list[tuple[ExecutionTimes, int]] = [(AtTheBound(), 1), (UpToTheBound(0), HYPERPERIODS - 1)]
        for times, length in runs:
            done = simulate(workload, admitted, make_policy(policy), times, stop_ns=length * HYPERPERIOD_NS)
            missed = [j for j in done.jobs if j.outcome != "met"]
            assert not missed, f"guaranteed and missed under {policy}: {missed[0]}"
    return True


def measure(utilisation: float, sets: int) -> dict[str, float]:
    made = [task_set(seed, utilisation) for seed in range(sets)]
    shares = {f.__name__: fmean(f(w, p) for w, p in made) for f in (ours, per_layer, per_model)}
    return {"utilisation": utilisation, **shares, "hyperperiods": 2 * HYPERPERIODS * round(shares["ours"] * sets)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admission", description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    rows = Parallel(n_jobs=given.workers, batch_size=1)(delayed(measure)(u, given.sets) for u in UTILISATIONS)
    means = {key: round(fmean(r[key] for r in rows), 4) for key in ("ours", "per_layer", "per_model")}
    means["hyperperiods_without_a_miss"] = sum(r["hyperperiods"] for r in rows)
    means["over_better"] = round(means["ours"] / max(means["per_layer"], means["per_model"]), 3)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"sets": given.sets, "mean": means, "rows": rows}, indent=1) + "\n")
    print(json.dumps(means, indent=1))


if __name__ == "__main__":
    main()
