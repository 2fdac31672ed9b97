"""How near does the simulation come? DISB A to E live on this machine, and simulated from the plan that was measured before.

    python -m benchmarks.foreseen [A B …] [--seconds S] [--rounds R] [--policy NAME]

Aims, of the real-time clients together: share of missed jobs within 2 points, p99 within 20 %. Live figures are medians over the
rounds, simulated ones over as many seeds. Prints the table and writes results/foreseen.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.disb import Served, Setting, is_best_effort, is_real_time, serve, setting
from benchmarks.harness import machine, quantile
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Sampled, simulate
from edgeengine.workload.disb import WORKLOADS

RESULTS = Path(__file__).with_name("results") / "foreseen.json"
AIM_POINTS, AIM_SHARE = 2.0, 0.2


def simulated(at: Setting, policy: str, seconds: float, seed: int) -> Served:
    done = simulate(at.workload, at.plan, make_policy(policy), Sampled(seed), stop_ns=round(seconds * 1e9), seed=0)
    urgent = [j for j in done.jobs if is_real_time(j.task.name)]
    rest = sum(j.finished for j in done.jobs if is_best_effort(j.task.name))
    ended = [(j.finish_ns - j.release_ns) / 1e6 for j in urgent if j.finished and j.finish_ns is not None]
    return Served(ended, sum(j.outcome != "met" for j in urgent), rest / seconds)


def figures(stretches: Sequence[Served]) -> dict[str, float]:
    return {
        "missed_percent": statistics.median(100 * s.missed / max(len(s.latencies_ms), 1) for s in stretches),
        "p50_ms": statistics.median(quantile(s.latencies_ms, 50) for s in stretches),
        "p99_ms": statistics.median(quantile(s.latencies_ms, 99) for s in stretches),
        "best_effort_hz": statistics.median(s.best_effort_hz for s in stretches),
    }


def compare(name: str, policy: str, seconds: float, rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        at, _, load = setting(name, Path(folder))
        live = figures([serve(at, policy, seconds) for _ in range(rounds)])
        foreseen = figures([simulated(at, policy, seconds, seed) for seed in range(rounds)])
    return {"workload": name, "load": load, "live": live, "simulated": foreseen}


def show(row: dict) -> None:  # type: ignore[type-arg]
    live, foreseen = row["live"], row["simulated"]
    points = abs(live["missed_percent"] - foreseen["missed_percent"])
    off = foreseen["p99_ms"] / live["p99_ms"] - 1
    print(
        f"DISB {row['workload']}: missed {live['missed_percent']:.1f} % live, {foreseen['missed_percent']:.1f} simulated"
        f" ({'met' if points <= AIM_POINTS else 'MISSED'}); p50 {live['p50_ms']:.2f}, {foreseen['p50_ms']:.2f} ms;"
        f" p99 {live['p99_ms']:.2f}, {foreseen['p99_ms']:.2f} ms, {off:+.0%} ({'met' if abs(off) <= AIM_SHARE else 'MISSED'});"
        f" best effort {live['best_effort_hz']:.0f}, {foreseen['best_effort_hz']:.0f} a second",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foreseen", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=5.0, help="of a stretch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="edf")
    given = parser.parse_args()
    rows = []
    for name in given.workloads:
        rows.append(compare(name, given.policy, given.seconds, given.rounds))
        show(rows[-1])
    if given.workloads == list(WORKLOADS):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"machine": machine(), "policy": given.policy, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
