"""Band's sample workloads under its own policies and ours: the share of jobs that meet their SLO, simulated.

    python -m benchmarks.band

Deadlines are SLO scale x period, from .5 to 3; each model whole or in four parts; latencies scaled so that the fluid limit of the
three processors is 1.1. Medians, no noise, a second of releases. Prints the tables and writes results/band.json.
"""

from __future__ import annotations

import json
from pathlib import Path

from edgeengine.planning import plan_from_latencies
from edgeengine.planning.prices import fluid
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.workload import Workload, revised
from edgeengine.workload.band import WORKLOADS, band_workload

RESULTS = Path(__file__).with_name("results") / "band.json"
BAND = ("fixed-worker", "round-robin", "shortest-expected-latency", "heft", "heft-reserved", "least-slack")
SCALES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
LOAD = 1.1
STOP_NS = 1_000_000_000


def cell(name: str, device: str, segments: int, slo: float) -> Workload:
    """The workload at LOAD, deadlines `slo` times the period."""
    one = band_workload(name, device, segments=segments)
    load = fluid(one, plan_from_latencies(one), within_deadline=False).load
    tasks = band_workload(name, device, scale=LOAD / load, segments=segments)
    return revised(tasks, {t.name: {"deadline_ms": slo * (t.period_ms or 0.0)} for t in tasks.tasks})


def satisfaction(tasks: Workload, policy: str) -> float:
    """Share of the released jobs that were met."""
    done = simulate(tasks, plan_from_latencies(tasks), make_policy(policy), Median(), stop_ns=STOP_NS)
    return sum(j.outcome == "met" for j in done.jobs) / sum(done.released.values())


def main() -> None:
    rows = []
    for name in WORKLOADS:
        for device in ("a", "b"):
            for segments in (1, 4):
                for slo in SCALES:
                    tasks = cell(name, device, segments, slo)
                    shares = {policy: round(satisfaction(tasks, policy), 4) for policy in ("price", "edf", *BAND)}
                    rows.append({"workload": name, "device": device, "segments": segments, "slo": slo, **shares})
                    line = f"ours {shares['price']:.3f}, best of Band {max(shares[p] for p in BAND):.3f}"
                    print(f"{name:7} {device} n={segments} SLO {slo:4}: {line}", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"load": LOAD, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
