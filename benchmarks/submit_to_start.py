"""From just before `submit` to the first line of the subgraph's run, on a worker that sleeps.

Once with the caller asleep for 3 ms before, once back to back: the difference is the caller's own code, fallen out of the
caches meanwhile, and on a shared machine it is most of the time.
"""

from __future__ import annotations

import time
from time import monotonic_ns

from benchmarks.bare_queue import BareQueue
from benchmarks.harness import Row
from benchmarks.stamped import CALLERS, StampedProvider, noop_engine, one_core

ROUNDS = 500
WARM_UP = 20
AIM_US = 80


def run() -> list[Row]:
    processor, provider = one_core(), StampedProvider()
    rows = []
    with noop_engine(provider, processor) as engine, BareQueue(processor.host_core) as queue:
        for caller, pause_s in CALLERS.items():
            ours: list[float] = []
            bare: list[float] = []
            for _ in range(WARM_UP + ROUNDS):
                time.sleep(pause_s)
                before_ns = monotonic_ns()
                engine.submit("single").result()
                ours.append((provider.stamps[-1][0] - before_ns) / 1e3)
                time.sleep(pause_s)
                bare.append(queue.exchange()[0] / 1e3)
            rows.append(
                Row(f"submit -> start, {caller}", "us", ours[WARM_UP:], AIM_US, peer="bare hand-off", peer_samples=bare[WARM_UP:])
            )
    return rows
