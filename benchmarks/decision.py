"""One scheduler decision with ten tasks: `step` of every event on which the policy decides, EDF and the price policy.

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
PRICE_SEGMENTS, PRICE_AIM_US = 5, 1000
LOAD = 0.98  # of three processors; the npu is the fastest


def run() -> list[Row]:
    return [_row("edf", SEGMENTS, AIM_US), _row("price", PRICE_SEGMENTS, PRICE_AIM_US)]


def _row(policy: str, segments: int, aim_us: int) -> Row:
    workload = ten_tasks(segments)
    plan = plan_from_latencies(workload)
    log = simulate(workload, plan, make_policy(policy), Median(), stop_ns=SIMULATED_NS, keep_log=True).log or []
    samples = [us for _ in range(REPEATS) for us in _decisions_us(policy, workload, plan, log)]
    note = f"{segments} segments, 3 processors: {10 * 3 * segments} candidate subgraphs"
    return Row(f"decision of {policy}, 10 tasks", "us", samples, aim_us, aim_at=99, note=note)


def ten_tasks(segments: int = SEGMENTS) -> Workload:
    share = LOAD * 3 / len(PERIODS_MS)
    text = "".join(
        f'[[task]]\nname = "t{i}"\nperiod_ms = {period}\nsegments = {segments}\ncriticality = "{("high", "normal")[i % 2]}"\n'
        f"latency_ms = {{ npu = {share * period * 0.7}, gpu = {share * period}, cpu = {share * period * 1.3} }}\n"
        for i, period in enumerate(PERIODS_MS)
    )
    return parse_workload(text.encode())


class _Noticed:
    """A policy that notes that it was asked."""

    def __init__(self, name: str) -> None:
        self.name, self._policy = name, make_policy(name)
        self.asked = False

    def prepare(self, view: View) -> None:
        prepare = getattr(self._policy, "prepare", None)
        if prepare is not None:
            prepare(view)

    def decide(self, view: View, now: int) -> list[AnyAction]:
        self.asked = True
        return self._policy.decide(view, now)


def _decisions_us(name: str, workload: Workload, plan: Plan, log: Sequence[LogLine]) -> list[float]:
    policy = _Noticed(name)
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
