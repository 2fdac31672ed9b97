"""At its period: the latency of a subgraph that runs now and then, between the others, as it will in service.

Tight-loop figures do not hold there: caches are cold, cores have slept (a MatMul every 30 ms takes 1.5-2 times its back-to-back time;
onnxruntime#16135, #17711). All items share one timeline, each at its own period, never two at once.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from edgeengine.devices.providers import Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.profiling.candidate import Candidate, load, shapes_text, timestamp, versions
from edgeengine.devices.pinning import pin, run_pinned
from edgeengine.spec import Latency, ProfileRow

WARM_UP = 1  # occurrences of each candidate that are not counted


class PacedItem(NamedTuple):
    """A job as it will run: its chain, one subgraph after the other, on one of several equivalent processors in turn.

    `chains` holds the same subgraphs on each of these processors. `tensors`: what the chain reads. `follow_ups`: positions of the
    items that run right after this one (`after`), which have no timeline of their own.
    """

    name: str
    chains: Sequence[Sequence[Candidate]]
    tensors: Tensors
    period_ns: int
    follow_ups: tuple[int, ...] = ()
    is_follow_up: bool = False


def period_condition(period_ns: int) -> str:
    return f"period:{period_ns / 1e6:g}"


def measure_paced(
    items: Sequence[PacedItem],
    providers: dict[str, Provider],
    device: str,
    *,
    seconds: float,
    progress: Callable[[float], None] | None = None,
) -> list[ProfileRow]:
    """Run the shared timeline for `seconds`; one row per candidate that was met more than WARM_UP times."""
    samples: dict[tuple[int, int, int], list[int]] = {}
    loaded = {
        (i, a, b): load(c, providers[c.processor.provider], items[i].tensors)
        for i, item in enumerate(items)
        for a, chain in enumerate(item.chains)
        for b, c in enumerate(chain)
    }
    turn = [0] * len(items)

    def occur(i: int) -> None:
        alternative = turn[i] % len(items[i].chains)
        turn[i] += 1
        chain = items[i].chains[alternative]
        for position in range(len(chain)):
            run, tensors = loaded[i, alternative, position].executable.run, items[i].tensors
            begun = time.perf_counter_ns()
            run(tensors)
            samples.setdefault((i, alternative, position), []).append(time.perf_counter_ns() - begun)
        for follower in items[i].follow_ups:
            turn[follower] = turn[i] - 1  # on the processor its parent just used
            occur(follower)

    def timeline() -> None:
        start = time.monotonic_ns()
        due = [(start + item.period_ns, i) for i, item in enumerate(items) if not item.is_follow_up]
        heapq.heapify(due)
        stop = start + round(seconds * 1e9)
        while due and due[0][0] < stop:
            at, i = heapq.heappop(due)
            pin(items[i].chains[turn[i] % len(items[i].chains)][0].processor.host_core)
            time.sleep(max(at - time.monotonic_ns(), 0) / 1e9)
            occur(i)
            heapq.heappush(due, (max(at + items[i].period_ns, time.monotonic_ns()), i))
            if progress is not None:
                progress(min((at - start) / (stop - start), 1.0))

    if items:
        run_pinned(items[0].chains[0][0].processor, timeline)
    rows = []
    for (i, a, b), values in sorted(samples.items()):
        if len(values) > WARM_UP:
            c, made = items[i].chains[a][b], loaded[i, a, b]
            rows.append(
                ProfileRow(
                    c.bundle.hash, device, c.processor.name, c.subgraph.name, shapes_text(c.subgraph, items[i].tensors),
                    period_condition(items[i].period_ns), Latency.of(values[WARM_UP:]), made.first_run_ns, made.create_ns,
                    made.resident_bytes, timestamp(), versions(),
                )
            )  # fmt: skip
    return rows
