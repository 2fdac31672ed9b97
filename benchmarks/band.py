"""Band's sample workloads under its own policies and ours, simulated: the share of jobs that meet their SLO, and throughput.

    python -m benchmarks.band

SLO: deadlines are SLO scale x period, .5 to 3; each model whole or in four parts; latencies scaled so that the fluid limit of
the processors (three, and four) is 1.1. Throughput: four processors, latencies scaled so that the fluid limit, a linear program
that may split any job over all processors, is exactly 1, and a lenient deadline: then nobody can finish more than what is
released. Beside it every model whole on the processor that is best for it. Medians, no noise, a second of releases. Prints
the tables and writes results/band.json.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from edgeengine.planning import plan_from_latencies
from edgeengine.planning.prices import fluid
from edgeengine.planning.what_if import advise
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Plan
from edgeengine.workload import Workload, revised
from edgeengine.workload.band import WORKLOADS, band_workload
from edgeengine.workload.xr import DEVICES, Rates

RESULTS = Path(__file__).with_name("results") / "band.json"
BAND = ("fixed-worker", "round-robin", "shortest-expected-latency", "heft", "heft-reserved", "least-slack")
SCALES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
LOAD = 1.1
STOP_NS = 1_000_000_000
# Band's phones have a DSP as well; made-up rates, as those of devices a and b.
FOUR = Rates({"cpu": 0.1, "gpu": 0.5, "dsp": 1.0, "npu": 2.0}, {"cpu": 3.0, "gpu": 4.0, "dsp": 2.0, "npu": 2.0})
ON = {"a": DEVICES["a"], "b": DEVICES["b"], "four": FOUR}
LENIENT = 3.0  # deadlines where throughput is counted, in periods


def cell(name: str, device: Rates, segments: int, slo: float, load: float = LOAD) -> Workload:
    """The workload at `load`, deadlines `slo` times the period."""
    one = band_workload(name, device, segments=segments)
    unscaled = fluid(one, plan_from_latencies(one), within_deadline=False).load
    tasks = band_workload(name, device, scale=load / unscaled, segments=segments)
    return revised(tasks, {t.name: {"deadline_ms": slo * (t.period_ms or 0.0)} for t in tasks.tasks})


def satisfactions(tasks: Workload) -> dict[str, float]:
    """By policy; `ours` is price with the guidance of a plan, one setting for all cells."""
    shares = {policy: round(satisfaction(tasks, policy), 4) for policy in ("price", "edf", *BAND)}
    plan = plan_from_latencies(tasks)
    advised = msgspec.structs.replace(plan, guidance=advise(tasks, plan, window_ns=STOP_NS))
    return {"ours": round(satisfaction(tasks, "price", advised), 4), **shares}


def satisfaction(tasks: Workload, policy: str, plan: Plan | None = None) -> float:
    """Share of the released jobs that were met."""
    done = simulate(tasks, plan or plan_from_latencies(tasks), make_policy(policy), Median(), stop_ns=STOP_NS)
    return sum(j.outcome == "met" for j in done.jobs) / sum(done.released.values())


def on_its_best(tasks: Workload) -> Workload:
    """Every model whole on its fastest processor."""
    alone = {t.name: min(t.latency_ms, key=t.latency_ms.__getitem__) for t in tasks.tasks}
    return revised(
        tasks, {t.name: {"latency_ms": {alone[t.name]: t.latency_ms[alone[t.name]]}, "segments": 1} for t in tasks.tasks}
    )


def slo_rows() -> list[dict[str, object]]:
    rows = []
    for name in WORKLOADS:
        for device, rates in ON.items():
            for segments in (1, 4):
                for slo in SCALES:
                    tasks = cell(name, rates, segments, slo)
                    shares = satisfactions(tasks)
                    rows.append({"workload": name, "device": device, "segments": segments, "slo": slo, **shares})
                    best = max(BAND, key=shares.__getitem__)
                    worse = "" if shares["ours"] >= shares[best] else "  BELOW"
                    line = f"ours {shares['ours']:.3f} ({shares['price']:.3f} without a plan), Band {shares[best]:.3f} {best}"
                    print(f"{name:7} {device:4} n={segments} SLO {slo:4}: {line}{worse}", flush=True)
    return rows


def throughput_rows() -> list[dict[str, object]]:
    """Jobs done in time as a share of the physical bound, which is all that are released."""
    rows = []
    for name in WORKLOADS:
        for segments in (1, 4):
            tasks = cell(name, FOUR, segments, LENIENT, load=1.0)
            shares = satisfactions(tasks)
            alone = satisfaction(on_its_best(tasks), "edf")
            rows.append({"workload": name, "segments": segments, "on_best_processor": alone, **shares})
            ours, theirs = shares["ours"], ", ".join(f"{p} {shares[p]:.3f}" for p in BAND)
            print(
                f"throughput {name:7} n={segments}: ours {ours:.3f} of the bound, {ours / alone:.2f} times every model whole on"
                f" its best processor ({alone:.3f}); edf {shares['edf']:.3f}, {theirs}",
                flush=True,
            )
    return rows


def main() -> None:
    throughput, slo = throughput_rows(), slo_rows()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"load": LOAD, "throughput": throughput, "rows": slo}, indent=1) + "\n")


if __name__ == "__main__":
    main()
