"""Every policy on XRBench's scenarios (strict score): our price policy with its plan beside the published ones.

    python -m benchmarks.policies [--quick] [--workers N]

Two devices of three processors, models whole and in four parts, utilisation .5 to 1.5 (the load of the fluid limit), and again
with 10 % log-normal latencies. Runs follow XRBench's: 700 ms, a queued frame whose deadline has passed is dropped (for every
policy). Ours has one setting for all cells; its what-ifs draw other numbers than the runs. Prints the tables and writes
results/policies.json.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean

import msgspec
from joblib import Parallel, delayed

from edgeengine.planning import plan_from_latencies
from edgeengine.planning.objectives import xr_frames, xr_strict
from edgeengine.planning.prices import fluid
from edgeengine.planning.what_if import advise
from edgeengine.scheduling import Policy
from edgeengine.scheduling.policies import PUBLISHED
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.price import Price
from edgeengine.simulation import Median, Sampled, simulate
from edgeengine.spec import Latency, Plan
from edgeengine.workload import Workload
from edgeengine.workload.xr import RUN_MS, SCENARIOS, xr_workload
from edgeengine.workload.xr_score import xr_score

RESULTS = Path(__file__).with_name("results") / "policies.json"
UTILISATIONS = (0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 1.5)
NOISY = (0.9, 1.1)
NOISE = 0.1  # sigma of the logarithm, mean 1
SEEDS = 20
RUN_NS = RUN_MS * 1_000_000
OWN_DROP = {"least-slack"}  # drops by its own rule as well


@dataclass(frozen=True)
class Cell:
    scenario: str
    device: str
    segments: int
    utilisation: float
    noise: float = 0.0

    def workload(self) -> Workload:
        one = xr_workload(self.scenario, self.device)
        load = fluid(one, plan_from_latencies(one), within_deadline=False).load
        return xr_workload(self.scenario, self.device, scale=self.utilisation / load, segments=self.segments)


def measure(cell: Cell, seeds: int = SEEDS) -> dict[str, object]:
    """Strict scores of all policies in the cell, averaged over the seeds."""
    workload = cell.workload()
    plan = plan_from_latencies(workload)
    if cell.noise:
        plan = noisy(plan, cell.noise)
    random_children = any(t.probability < 1 for t in workload.tasks)
    draws = range(seeds if cell.noise or random_children else 1)
    scores = {name: score(workload, plan, lambda m=make: m(drop="overdue"), draws) for name, make in PUBLISHED.items()}
    dropping = {name: score(workload, plan, lambda m=make: m(drop="hopeless"), draws) for name, make in PUBLISHED.items()}
    dropping["edf"] = score(workload, plan, Edf, draws)
    begun = time.perf_counter()
    advised = msgspec.structs.replace(plan, guidance=advise(workload, plan, objective=xr_strict, window_ns=RUN_NS))
    took_s = time.perf_counter() - begun
    ours = score(workload, advised, Price, draws)
    plain = score(workload, plan, Price, draws)
    return {
        **vars(cell), "ours": ours, "without_plan": plain, "rivals": scores, "rivals_dropping": dropping,
        "guidance": msgspec.to_builtins(advised.guidance), "planning_s": round(took_s, 2),
    }  # fmt: skip


def score(workload: Workload, plan: Plan, make, draws: Sequence[int]) -> float:  # type: ignore[no-untyped-def]
    return fmean(_score(workload, plan, make(), seed) for seed in draws)


def _score(workload: Workload, plan: Plan, policy: Policy, seed: int) -> float:
    constant = all(s.latency.n == 1 for t in plan.tasks for s in t.steps)
    done = simulate(workload, plan, policy, Median() if constant else Sampled(seed), stop_ns=RUN_NS, seed=seed)
    return xr_score(xr_frames(done.jobs), strict=True)


def noisy(plan: Plan, sigma: float) -> Plan:
    """Log-normal latencies of the same means."""
    rng = random.Random(0)
    factors = sorted(math.exp(rng.gauss(-sigma * sigma / 2, sigma)) for _ in range(2000))

    def spread(latency: Latency) -> Latency:
        return Latency.of([round(latency.p50_ns * f) for f in factors])

    tasks = tuple(
        msgspec.structs.replace(t, steps=tuple(msgspec.structs.replace(s, latency=spread(s.latency)) for s in t.steps))
        for t in plan.tasks
    )
    return msgspec.structs.replace(plan, tasks=tasks)


def cells(quick: bool) -> list[Cell]:
    devices, parts = ("a", "b"), (1, 4)
    plain = [Cell(s, d, n, u) for d in devices for n in parts for u in UTILISATIONS for s in SCENARIOS]
    noise = [Cell(s, d, n, u, NOISE) for d in devices for n in parts for u in NOISY for s in SCENARIOS]
    return plain[::5] if quick else plain + noise


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Worst ratio to the best rival of a cell, and geometric means over the overloaded cells."""
    plain = [r for r in rows if not r["noise"]]
    noise = [r for r in rows if r["noise"]]
    found: dict[str, object] = {
        "worst_cell": min((_over_best(r, "rivals"), _name(r)) for r in plain),
        "worst_cell_dropping": min((_over_best(r, "rivals_dropping"), _name(r)) for r in plain),
        "worst_noisy_cell": min(((_over_best(r, "rivals"), _name(r)) for r in noise), default=None),
        "planning_s_most": max(r["planning_s"] for r in rows),
    }
    for device in ("a", "b"):
        for parts in ((1,), (4,), (1, 4)):
            over = [r for r in plain if r["device"] == device and r["segments"] in parts and r["utilisation"] >= 1]
            if not over:
                continue
            single = {p: geometric_mean([_ratio(r["ours"], r["rivals"][p]) for r in over]) for p in PUBLISHED}
            found[f"{device} n={','.join(map(str, parts))}"] = {
                "over_best_of_cell": round(geometric_mean([_over_best(r, "rivals") for r in over]), 4),
                "over_best_of_cell_dropping": round(geometric_mean([_over_best(r, "rivals_dropping") for r in over]), 4),
                "without_plan_over_best_of_cell": round(
                    geometric_mean([_ratio(r["without_plan"], max(r["rivals"].values())) for r in over]), 4
                ),
                "over_best_single": min((round(v, 4), p) for p, v in single.items()),
                "over_each": {p: round(v, 3) for p, v in single.items()},
            }
    return found


def _ratio(ours, theirs) -> float:  # type: ignore[no-untyped-def]
    return max(ours, 1e-3) / max(theirs, 1e-3)


def _over_best(row, which: str) -> float:  # type: ignore[no-untyped-def]
    return _ratio(row["ours"], max(row[which].values()))


def _name(row) -> str:  # type: ignore[no-untyped-def]
    return f"{row['scenario']} {row['device']} n={row['segments']} U={row['utilisation']}"


def show(row) -> None:  # type: ignore[no-untyped-def]
    rivals, dropping = row["rivals"], row["rivals_dropping"]
    best, also = max(rivals, key=rivals.get), max(dropping, key=dropping.get)
    print(
        f"{_name(row):42s}{' noise' if row['noise'] else '':6s} ours {row['ours']:6.2f} (no plan {row['without_plan']:6.2f})"
        f"  best {rivals[best]:6.2f} {best:26s} dropping {dropping[also]:6.2f} {also:26s}"
        f" x{_over_best(row, 'rivals'):.3f} {row['guidance'].get('policy', '')} {row['planning_s']:.1f} s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every fifth cell, no noise")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    begun = time.perf_counter()
    rows = []
    for row in Parallel(n_jobs=given.workers, batch_size=1, return_as="generator")(
        delayed(measure)(c) for c in cells(given.quick)
    ):
        rows.append(row)
        show(row)
    result = {"summary": summary(rows), "seconds": round(time.perf_counter() - begun), "cells": rows}
    if not given.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1), f"{result['seconds']} s")


if __name__ == "__main__":
    main()
