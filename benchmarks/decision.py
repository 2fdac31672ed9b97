"""One scheduler decision with ten tasks: `step` of every event on which EDF decides.

The events are those of a simulated busy run, replayed through fresh schedulers: exactly what the live engine executes under
its lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

from benchmarks.harness import Row
from edgeengine.events import AnyAction, LogLine
from edgeengine.planning import plan_from_latencies
from edgeengine.scheduling import Scheduler, View, make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.spec import Plan
from edgeengine.workload import Workload, parse_workload

SIMULATED_NS = 5_000_000_000
REPEATS = 5
AIM_US = 200
PERIODS_MS = (10, 12, 15, 20, 25, 30, 33, 40, 50, 66)
SEGMENTS = 4
LOAD = 0.98  # of three processors; the npu is the fastest


def run() -> list[Row]:
    workload = ten_tasks()
    plan = plan_from_latencies(workload)
    log = simulate(workload, plan, make_policy("edf"), Median(), stop_ns=SIMULATED_NS, keep_log=True).log or []
    samples = [us for _ in range(REPEATS) for us in _decisions_us(workload, plan, log)]
    return [Row("scheduler decision, 10 tasks", "us", samples, AIM_US, aim_at=99, note=f"{SEGMENTS} segments, 3 processors")]


def ten_tasks() -> Workload:
    share = LOAD * 3 / len(PERIODS_MS)
    text = "".join(
        f'[[task]]\nname = "t{i}"\nperiod_ms = {period}\nsegments = {SEGMENTS}\ncriticality = "{("high", "normal")[i % 2]}"\n'
        f"latency_ms = {{ npu = {share * period * 0.7}, gpu = {share * period}, cpu = {share * period * 1.3} }}\n"
        for i, period in enumerate(PERIODS_MS)
    )
    return parse_workload(text.encode())


class _Noticed:
    """EDF that notes that it was asked."""

    name = "edf"

    def __init__(self) -> None:
        self._decide = make_policy("edf").decide
        self.asked = False

    def decide(self, view: View, now: int) -> list[AnyAction]:
        self.asked = True
        return self._decide(view, now)


def _decisions_us(workload: Workload, plan: Plan, log: Sequence[LogLine]) -> list[float]:
    policy = _Noticed()
    step = Scheduler(workload, plan, policy).step
    samples = []
    for line in log:
        policy.asked = False
        begun_ns = perf_counter_ns()
        step(line.event)
        took_ns = perf_counter_ns() - begun_ns
        if policy.asked:
            samples.append(took_ns / 1e3)
    return samples
