"""From the end of a subgraph to the start of the next one on the same worker.

Within a job (a chain of six), and from job to job: 20 of them queue behind one that holds the worker, which then also delivers
a result in between.
"""

from __future__ import annotations

import time
from itertools import pairwise

from benchmarks.bare_queue import BareQueue
from benchmarks.harness import Row
from benchmarks.stamped import StampedProvider, noop_engine, one_core

ROUNDS = 200
WARM_UP = 10
QUEUED = 20
PAUSE_S = 0.003
AIM_US = 40


def run() -> list[Row]:
    processor, provider = one_core(), StampedProvider()
    within: list[float] = []
    between: list[float] = []
    bare: list[float] = []
    with noop_engine(provider, processor) as engine, BareQueue(processor.host_core) as queue:
        for number in range(WARM_UP + ROUNDS):
            time.sleep(PAUSE_S)
            provider.stamps.clear()
            engine.submit("chain").result()
            chain = _gaps_us(provider.stamps)
            time.sleep(PAUSE_S)
            woke_ns, _ = queue.exchange()
            time.sleep(PAUSE_S)
            provider.stamps.clear()
            provider.gate.clear()
            futures = [engine.submit(name) for name in ("gate", *["single"] * QUEUED)]
            provider.gate.set()
            for future in futures:
                future.result()
            if number >= WARM_UP:
                within += chain
                between += _gaps_us(provider.stamps)
                bare.append(woke_ns / 1e3)
    return [
        Row("end -> start, within a job", "us", within, AIM_US, peer="bare hand-off", peer_samples=bare),
        Row("end -> start, job to job", "us", between, AIM_US, peer="bare hand-off", peer_samples=bare),
    ]


def _gaps_us(stamps: list[tuple[int, int]]) -> list[float]:
    return [(entered - left) / 1e3 for (_, left), (entered, _) in pairwise(stamps)]
