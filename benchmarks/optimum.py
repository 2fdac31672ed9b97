"""How far the price policy is from the best schedule that exists: 50 small random workloads, solved exactly by CP-SAT.

    python -m benchmarks.optimum [--instances N]

Three or four periodic tasks of one to three subgraphs on two unequal processors, loads from .7 to 1.5 of the fluid limit. The
optimum knows every release and weighs tasks 1, 2 or 3; ours runs online, planned for the same weights.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from edgeengine.planning import plan_from_latencies
from edgeengine.planning.exact import best_schedule
from edgeengine.planning.prices import fluid
from edgeengine.planning.what_if import advise
from edgeengine.scheduling import Job, Policy
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.price import Price
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Plan
from edgeengine.workload import Task, Workload

RESULTS = Path(__file__).with_name("results") / "optimum.json"
STOP_NS = 200_000_000
PERIODS_MS = (20.0, 25.0, 40.0, 50.0, 100.0)


def instance(seed: int) -> tuple[Workload, dict[str, int]]:
    """A workload and the weight of each task."""
    rng = random.Random(seed)
    tasks = []
    for i in range(rng.choice((3, 4))):
        period = rng.choice(PERIODS_MS)
        npu = rng.uniform(0.1, 0.5) * period
        latency = {"cpu": npu * rng.uniform(1.5, 4), "npu": npu}
        tasks.append(Task(name=f"t{i}", period_ms=period, latency_ms=latency, segments=rng.choice((1, 2, 3))))
    workload = Workload(tuple(tasks))
    factor = rng.uniform(0.7, 1.5) / fluid(workload, plan_from_latencies(workload), within_deadline=False).load
    scaled = tuple(
        msgspec.structs.replace(t, latency_ms={p: ms * factor for p, ms in t.latency_ms.items()}) for t in workload.tasks
    )
    return Workload(scaled), {t.name: rng.choice((1, 2, 3)) for t in tasks}


def measure(seed: int, seconds: float = 10.0) -> dict[str, float | bool]:
    workload, weights = instance(seed)
    plan = plan_from_latencies(workload)

    def value(_: Workload, jobs: Sequence[Job]) -> float:
        return float(sum(weights[j.task.name] for j in jobs if j.outcome == "met"))

    best = best_schedule(workload, plan, stop_ns=STOP_NS, weight=lambda t: weights[t.name], seconds=seconds)
    advised = msgspec.structs.replace(plan, guidance=advise(workload, plan, objective=value, window_ns=STOP_NS))

    def run(plan: Plan, policy: Policy) -> float:
        return value(workload, simulate(workload, plan, policy, Median(), stop_ns=STOP_NS).jobs) / best.value

    return {
        "seed": seed, "proved": best.proved, "optimum": best.value, "bound": best.bound, "ours": run(advised, Price()),
        "without_plan": run(plan, Price()), "edf": run(plan, Edf()),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimum", description=__doc__)
    parser.add_argument("--instances", type=int, default=50)
    rows = [measure(seed) for seed in range(parser.parse_args().instances)]
    summary = {key: round(fmean(float(r[key]) for r in rows), 4) for key in ("ours", "without_plan", "edf", "proved")}
    summary["worst"] = round(min(float(r["ours"]) for r in rows), 4)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"summary": summary, "instances": rows}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
