"""REEF's DISB A to E, live on this machine: real-time clients beside best-effort ones, under our engine and under bare sessions.

    python -m benchmarks.disb [A B …] [--seconds S] [--rounds R] [--policy NAME]

Nets of DISB's five kinds (see disb_nets), of the width at which the real-time clients ask for 0.4 of a core. Per round, one after
the other: real-time alone, best effort alone, both, all three under the engine; then both with a session and a thread per client,
once with ONNX Runtime's own number of threads, once with one thread a session. Aims: real-time p99 <= 1.15 times alone + the
longest best-effort subgraph (p99); best effort >= 0.8 times alone x (1 - the share of the machine that real-time takes). Prints
the table and writes results/disb.json. Latency runs from the nominal release to the end; a job dropped or late counts as missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime as ort

from benchmarks.disb_nets import NETS, save_net
from benchmarks.harness import cores, machine, quantile
from edgeengine.bundle import Bundle
from edgeengine.devices import discover
from edgeengine.engine import Engine
from edgeengine.engine.prepare import prepare
from edgeengine.graph import build_bundle
from edgeengine.profiling import ProfileStore
from edgeengine.spec import Plan
from edgeengine.workload import Releases, Task, Workload
from edgeengine.workload.disb import WORKLOADS, disb_workload

RESULTS = Path(__file__).with_name("results") / "disb.json"
LOAD = 0.4  # of one core, by the real-time clients
WIDTHS = range(4, 41, 2)
PARTS = 4
AIM_P99, AIM_BEST_EFFORT = 1.15, 0.8
REAL_TIME = "rt-"


@dataclass(frozen=True)
class Served:
    """Of one stretch: latencies in ms and missed jobs of the real-time clients, answers a second of the best-effort ones."""

    latencies_ms: list[float]
    missed: int
    best_effort_hz: float


@dataclass(frozen=True)
class Setting:
    """A workload whose tasks have models, with its bundles and plan."""

    workload: Workload
    bundles: dict[str, Bundle]
    plan: Plan

    def only(self, wanted: Callable[[str], bool]) -> Setting:
        tasks = tuple(t for t in self.workload.tasks if wanted(t.name))
        planned = tuple(t for t in self.plan.tasks if wanted(t.task))
        return Setting(
            msgspec.structs.replace(self.workload, tasks=tasks),
            {t.name: self.bundles[t.name] for t in tasks},
            msgspec.structs.replace(self.plan, tasks=planned),
        )


def is_real_time(task: str) -> bool:
    return task.startswith(REAL_TIME)


def is_best_effort(task: str) -> bool:
    return not is_real_time(task)


def kind(task: str) -> str:
    return task[len(REAL_TIME) :]  # both prefixes are of one length


def session(model: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads  # 0: ONNX Runtime's own choice
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def any_input(made: ort.InferenceSession) -> dict[str, np.ndarray]:
    return {i.name: np.zeros(i.shape, np.float32) for i in made.get_inputs()}


def alone_ms(model: Path) -> float:
    """Median of 30 runs on one thread."""
    made = session(model, 1)
    inputs, taken = any_input(made), []
    for _ in range(35):
        begun = time.perf_counter()
        made.run(None, inputs)
        taken.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(taken[5:])


def models(tasks: Sequence[Task], folder: Path) -> tuple[dict[str, Path], float]:
    """A net per kind, of the width that comes nearest to LOAD, and the load it gives."""
    rates = {kind(t.name): t.rate_hz or t.arrivals.poisson for t in tasks if is_real_time(t.name)}  # type: ignore[union-attr]
    loads = {}
    for width in WIDTHS:
        loads[width] = sum(alone_ms(save_net(k, width, folder)) / 1e3 * hz for k, hz in rates.items())
        if loads[width] > LOAD:
            break
    width = min(loads, key=lambda w: abs(loads[w] - LOAD))
    return {k: save_net(k, width, folder) for k in NETS}, loads[width]


def setting(name: str, folder: Path) -> tuple[Setting, dict[str, Path], float]:
    """The workload measured and planned on this machine's single cores."""
    stated = disb_workload(name).tasks
    files, load = models(stated, folder)
    tasks = tuple(
        msgspec.structs.replace(t, model=str(files[kind(t.name)]), latency_ms={}, energy_mj=None, segments=1) for t in stated
    )
    built = {file: build_bundle(file, folder / f"{file.stem}.edge", parts=PARTS) for file in {files[kind(t.name)] for t in tasks}}
    bundles = {t.name: built[files[kind(t.name)]] for t in tasks}
    processors = [p for p in discover() if p.usable and not p.emulated]
    prepared = prepare(Workload(tasks), dict(bundles), ProfileStore(folder / f"{name}.sqlite"), processors=processors)
    return Setting(Workload(tasks), bundles, prepared.plan), files, load


def serve(at: Setting, policy: str, seconds: float) -> Served:
    """A stretch under the engine."""
    with Engine(at.workload, at.plan, policy=policy, seconds=seconds, bundles=at.bundles, keep_jobs=True) as engine:
        engine.wait()
    urgent = [j for j in engine.jobs if is_real_time(j.task.name)]
    rest = sum(j.finished for j in engine.jobs if is_best_effort(j.task.name))
    ended = [(j.finish_ns - j.release_ns) / 1e6 for j in urgent if j.finished and j.finish_ns is not None]
    return Served(ended, sum(j.outcome != "met" for j in urgent), rest / seconds)


def bare(at: Setting, files: dict[str, Path], threads: int, seconds: float) -> Served:
    """A stretch under bare sessions: a session and a thread of its own for each client."""
    sessions = {t.name: session(files[kind(t.name)], threads) for t in at.workload.tasks}
    inputs = {name: any_input(made) for name, made in sessions.items()}
    for name, made in sessions.items():
        made.run(None, inputs[name])
    latencies: dict[str, list[float]] = {name: [] for name in sessions}
    begin_s = time.perf_counter() + 0.05

    def in_time(name: str, releases: list[float]) -> None:
        for release_s in releases:
            time.sleep(max(begin_s + release_s - time.perf_counter(), 0))
            sessions[name].run(None, inputs[name])
            latencies[name].append((time.perf_counter() - begin_s - release_s) * 1e3)

    def closed_loop(name: str) -> None:
        while time.perf_counter() < begin_s + seconds:
            sessions[name].run(None, inputs[name])
            latencies[name].append(0.0)

    due = released(at.workload, seconds)
    clients = [
        threading.Thread(target=in_time, args=(n, due[n])) if is_real_time(n) else threading.Thread(target=closed_loop, args=(n,))
        for n in sessions
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    urgent = [ms for name, taken in latencies.items() if is_real_time(name) for ms in taken]
    limits = [t.deadline_ms or 0.0 for t in at.workload.tasks if is_real_time(t.name) for _ in latencies[t.name]]
    rest = sum(len(taken) for name, taken in latencies.items() if is_best_effort(name))
    return Served(urgent, sum(ms > limit for ms, limit in zip(urgent, limits, strict=True)), rest / seconds)


def released(workload: Workload, seconds: float) -> dict[str, list[float]]:
    """When the real-time clients send, in seconds: the times the engine uses."""
    due: dict[str, list[float]] = {t.name: [] for t in workload.tasks}
    releases = Releases(workload, round(seconds * 1e9), 0)
    while (at_ns := releases.next_ns) is not None:
        for name, _ in releases.pop():
            due[name].append(at_ns / 1e9)
    return due


def together(stretches: Sequence[Served]) -> dict[str, float]:
    """The median over the rounds: a stretch that the host disturbed does not decide."""
    return {
        "p50_ms": statistics.median(quantile(s.latencies_ms, 50) for s in stretches) if stretches[0].latencies_ms else 0.0,
        "p99_ms": statistics.median(quantile(s.latencies_ms, 99) for s in stretches) if stretches[0].latencies_ms else 0.0,
        "missed": sum(s.missed for s in stretches),
        "best_effort_hz": statistics.median(s.best_effort_hz for s in stretches),
    }


def measure(name: str, policy: str, seconds: float, rounds: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        at, files, load = setting(name, Path(folder))
        ways: dict[str, Callable[[], Served]] = {
            "rt_alone": lambda: serve(at.only(is_real_time), policy, seconds),
            "be_alone": lambda: serve(at.only(is_best_effort), policy, seconds),
            "ours": lambda: serve(at, policy, seconds),
            "default_threads": lambda: bare(at, files, 0, seconds),
            "one_thread": lambda: bare(at, files, 1, seconds),
        }
        seen: dict[str, list[Served]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, stretch in ways.items():
                seen[way].append(stretch())
    blocking_ms = max(s.latency.p99_ns for t in at.plan.tasks if is_best_effort(t.task) for s in t.steps) / 1e6
    rows = {way: together(stretches) for way, stretches in seen.items()}
    share = load / cores()
    return {
        "workload": name, "load": load, "blocking_ms": blocking_ms, **rows,
        "p99_aim_ms": AIM_P99 * rows["rt_alone"]["p99_ms"] + blocking_ms,
        "best_effort_aim_hz": AIM_BEST_EFFORT * rows["be_alone"]["best_effort_hz"] * (1 - share),
        "rounds": [{way: together([stretches[i]]) for way, stretches in seen.items()} for i in range(rounds)],
    }  # fmt: skip


def show(row: dict) -> None:  # type: ignore[type-arg]
    print(f"DISB {row['workload']}: real-time load {row['load']:.2f} of a core, best-effort subgraph {row['blocking_ms']:.2f} ms")
    for way in ("rt_alone", "be_alone", "ours", "default_threads", "one_thread"):
        got = row[way]
        print(
            f"  {way:16} real-time p50 {got['p50_ms']:6.2f}  p99 {got['p99_ms']:7.2f} ms  missed {got['missed']:4}"
            f"  best effort {got['best_effort_hz']:7.0f} a second"
        )
    ours = row["ours"]
    kept = {True: "met", False: "MISSED"}
    print(
        f"  p99 at most {row['p99_aim_ms']:.2f} ms: {kept[ours['p99_ms'] <= row['p99_aim_ms']]};"
        f"  best effort at least {row['best_effort_aim_hz']:.0f}: {kept[ours['best_effort_hz'] >= row['best_effort_aim_hz']]}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disb", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of a stretch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--policy", default="edf")
    given = parser.parse_args()
    rows = []
    for name in given.workloads:
        rows.append(measure(name, given.policy, given.seconds, given.rounds))
        show(rows[-1])
    if given.workloads == list(WORKLOADS):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"machine": machine(), "policy": given.policy, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
