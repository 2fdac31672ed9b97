"""How processors slow each other down: memory bandwidth and heat are shared, whatever the resources say.

Planning with what each takes alone underestimates (onnxruntime#15202, #21365: up to three times on one GPU). A processor runs a
load alone and beside another processor that runs it without pause, in turns.
"""

from __future__ import annotations

from statistics import median_low
from typing import NamedTuple

from edgeengine.clock import Clock
from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import WORKER_PRIORITY, pin, real_time
from edgeengine.errors import DeviceError
from edgeengine.profiling.interval import LEAST
from edgeengine.spec import Latency, Processor

BURST = 3
MAX_ROUNDS = 60


class Running(NamedTuple):
    processor: Processor
    executable: Executable
    feeds: Tensors

    def run(self) -> None:
        self.executable.run(self.feeds)


def measure_beside(one: Running, other: Running, budget_s: float, clock: Clock) -> tuple[Latency, float]:
    """(latency of `one` while `other` runs too, that over its latency alone), medians of at least LEAST rounds.

    The two must not share what they read (weights), or one finds in a shared cache what the other brought there. Raises
    DeviceError when either fails.
    """
    alone: list[int] = []
    beside: list[int] = []
    failed: list[DeviceError] = []

    def body() -> None:
        pin(one.processor.host_core)
        real_time(WORKER_PRIORITY)
        end = clock.now_ns() + round(budget_s * 1e9)
        try:
            for done in range(MAX_ROUNDS):
                if done >= LEAST and clock.now_ns() > end:
                    return
                alone.extend(_timed(one, clock))
                with _Busy(other, clock) as busy:
                    while not busy.runs and not busy.failed:
                        one.run()
                    beside.extend(_timed(one, clock))
                failed.extend(busy.failed)
        except DeviceError as e:
            failed.append(e)

    clock.join(clock.start_thread(body, f"edgeengine measuring {one.processor.name} beside {other.processor.name}"))
    if failed:
        raise failed[0]
    return Latency.of(beside), median_low(beside) / max(median_low(alone), 1)


def _timed(one: Running, clock: Clock) -> list[int]:
    one.run()
    found = []
    for _ in range(BURST):
        begun = clock.now_ns()
        one.run()
        found.append(clock.now_ns() - begun)
    return found


class _Busy:
    """Another processor that runs without pause while this context is open."""

    def __init__(self, other: Running, clock: Clock) -> None:
        self._other, self._clock, self._stop = other, clock, False
        self.runs = 0
        self.failed: list[DeviceError] = []

    def _body(self) -> None:
        pin(self._other.processor.host_core)
        real_time(WORKER_PRIORITY)
        try:
            while not self._stop:
                self._other.run()
                self.runs += 1
        except DeviceError as e:
            self.failed.append(e)

    def __enter__(self) -> _Busy:
        self._thread = self._clock.start_thread(self._body, f"edgeengine keeping {self._other.processor.name} busy")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._clock.join(self._thread)
