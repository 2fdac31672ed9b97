"""Latencies that drift from the plan's: heat, or another program, slows all that runs on a processor by much the same factor.

A sign test per processor: where nothing drifts, a run takes longer than its median as often as not, whatever its distribution.
As soon as CLEAR of at most WINDOW runs took longer (or less) than the median now expected, by SLACK at least, the median of
their ratios to the plan becomes the new factor, and counting begins anew. By chance alone one window in 240 would be so clear
(the binomial tail, both sides) at no slack; at 5 % and latencies that spread by 10 %, one in 100,000.

Shared by the live engine and the simulator. The core learns factors by events, so that logs replay.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from edgeengine.events import EstimateChanged, Finished
from edgeengine.spec import Plan

WINDOW, CLEAR = 16, 14
SLACK = 0.05
FORGET_NS = 2_000_000_000  # a processor that nobody uses is tried again: half of what slowed it is forgotten each time
AS_PLANNED = 0.02  # a factor so near to 1 is 1


class _Processor:
    def __init__(self) -> None:
        self.factor, self.seen_ns = 1.0, 0
        self.restart()

    def restart(self) -> None:
        self.ratios: deque[float] = deque(maxlen=WINDOW)
        self.slower = self.faster = 0
        self.low, self.high = self.factor * (1 - SLACK), self.factor * (1 + SLACK)

    def add(self, ratio: float) -> bool:
        """Whether the runs of the window are clearly slower, or faster, than expected."""
        if (self.slower or self.faster) and len(self.ratios) == WINDOW:
            oldest = self.ratios[0]
            self.slower -= oldest > self.high
            self.faster -= oldest < self.low
        self.ratios.append(ratio)
        if self.low <= ratio <= self.high:
            return False
        self.slower += ratio > self.high
        self.faster += ratio < self.low
        return self.slower >= CLEAR or self.faster >= CLEAR


class Drift:
    """Feed it every run that ended; tell the core what it answers."""

    def __init__(self, plan: Plan):
        self._planned_ns = {(t.task, s.subgraph, s.processor): max(s.latency.p50_ns, 1) for t in plan.tasks for s in t.steps}
        self._processors = {p.name: _Processor() for p in plan.processors}
        self._changed: list[str] = []  # processors whose factor is not 1

    def observe(self, run: Finished) -> list[EstimateChanged]:
        """New factors, if any, at the instant of the run's end."""
        if run.outcome != "done":
            return []
        planned_ns = self._planned_ns[run.task, run.subgraph, run.processor]
        return self.add(run.processor, run.at_ns, run.duration_ns / planned_ns)

    def add(self, processor: str, now: int, ratio: float) -> list[EstimateChanged]:
        """As observe, of a run that took `ratio` times what was planned."""
        found = self._forget(now) if self._changed else []
        p = self._processors[processor]
        p.seen_ns = now
        if p.add(ratio):
            found.append(self._set(processor, median(p.ratios), now))
        return found

    def _forget(self, now: int) -> list[EstimateChanged]:
        unused = [name for name in self._changed if now - self._processors[name].seen_ns > FORGET_NS]
        return [self._set(name, 1 + (self._processors[name].factor - 1) / 2, now) for name in unused]

    def _set(self, name: str, factor: float, now: int) -> EstimateChanged:
        p = self._processors[name]
        p.factor = 1.0 if abs(factor - 1) < AS_PLANNED else factor
        p.seen_ns = now
        p.restart()
        self._changed = [n for n, q in self._processors.items() if q.factor != 1.0]
        return EstimateChanged(now, name, round(p.factor, 6))
