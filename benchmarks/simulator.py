"""Simulated jobs per second, beside SimSo 0.8.5: the same six tasks on three processors for ten simulated seconds.

Both under EDF, ours with the scheduler class of the live engine and non-preemptive, SimSo's preemptive and global. Runs
alternate; neither's start-up is counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import Row
from edgeengine.planning import plan_from_latencies
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Plan
from edgeengine.workload import Workload, parse_workload

TASKS = ((10, 3), (12, 5), (20, 7), (15, 4), (30, 11), (25, 8))  # (period, execution time) in ms
PROCESSORS = 3
SIMULATED_MS = 10_000
REPEATS = 5
OURS_PER_REPEAT = 10  # ours are short: more of them see as much of the noise
AIM_JOBS_S = 25_000


class MissingPeer(Exception):
    """SimSo cannot be run here."""


class SimSo:
    """SimSo in the interpreter of its own environment (it pins an old SimPy): each `run` is one simulation."""

    def __init__(self) -> None:
        python = Path(sys.prefix) / "simso" / "bin" / "python"
        if not python.exists():
            raise MissingPeer("SimSo's environment is absent; 'make bench' builds it")
        runner = Path(__file__).with_name("simso_runner.py")
        setting = json.dumps({"tasks": TASKS, "processors": PROCESSORS, "simulated_ms": SIMULATED_MS})
        command = [str(python), "-W", "ignore", str(runner), setting]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self) -> SimSo:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self) -> float:
        """Jobs per second of one run."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write("run\n")
            answer = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError) as e:
            raise MissingPeer("SimSo's environment is broken (see above); remove it and run 'make bench'") from e
        return float(answer["jobs"]) / float(answer["seconds"])


def run() -> list[Row]:
    workload = six_tasks()
    plan = plan_from_latencies(workload)
    ours: list[float] = []
    theirs: list[float] = []
    note = "SimSo's EDF is preemptive, ours is not; with these tasks neither misses a deadline"
    _ours(workload, plan)
    try:
        with SimSo() as peer:
            for _ in range(REPEATS):
                ours += [_ours(workload, plan) for _ in range(OURS_PER_REPEAT)]
                theirs.append(peer.run())
    except MissingPeer as e:
        note = str(e)
        ours = [_ours(workload, plan) for _ in range(REPEATS * OURS_PER_REPEAT)]
        theirs = []
    peer_name = "SimSo 0.8.5" if theirs else "SimSo: absent"
    return [Row("simulator, EDF, 6 tasks", "jobs/s", ours, AIM_JOBS_S, rate=True, peer=peer_name, peer_samples=theirs, note=note)]


def six_tasks() -> Workload:
    text = "".join(
        f'[[task]]\nname = "t{i}"\nperiod_ms = {period}\nlatency_ms = {{ '
        + ", ".join(f"cpu{c} = {wcet}" for c in range(PROCESSORS))
        + " }\n"
        for i, (period, wcet) in enumerate(TASKS)
    )
    return parse_workload(text.encode())


def _ours(workload: Workload, plan: Plan) -> float:
    begun = time.perf_counter()
    jobs = simulate(workload, plan, make_policy("edf"), Median(), stop_ns=SIMULATED_MS * 1_000_000).jobs
    return len(jobs) / (time.perf_counter() - begun)
