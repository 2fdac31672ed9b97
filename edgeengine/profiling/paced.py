"""At its period: the latency of a subgraph that runs now and then, between the others, as it will in service.

Tight-loop figures do not hold there: caches are cold, cores have slept (a MatMul every 30 ms takes 1.5-2 times its back-to-back
time; onnxruntime#16135, #17711). All items share one timeline, each at its own period, never two at once.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from edgeengine.devices.providers import Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import pin, run_pinned
from edgeengine.profiling.candidate import Candidate, Loaded, load, shapes_text, timestamp, versions
from edgeengine.spec import Latency, ProfileRow

WARM_UP = 1  # occurrences of each candidate that are not counted


class PacedItem(NamedTuple):
    """A job as it will run: its chain, one subgraph after the other, on one of several equivalent processors in turn.

    `chains` holds the same subgraphs on each of these processors. `inputs(index)` gathers what the chain reads, as a worker
    would; `outputs(index, tensors)` hands on what it made. `follow_ups`: positions of the items that run right after this one
    (`after`), which have no timeline of their own.
    """

    name: str
    chains: Sequence[Sequence[Candidate]]
    inputs: Callable[[int], Tensors]
    outputs: Callable[[int, Tensors], None]
    period_ns: int
    follow_ups: tuple[int, ...] = ()
    is_follow_up: bool = False


class Paced(NamedTuple):
    """Rows of the subgraphs, and by item what gathering inputs and handing on outputs took."""

    rows: list[ProfileRow]
    inputs: dict[str, Latency]
    outputs: dict[str, Latency]


def period_condition(period_ns: int) -> str:
    return f"period:{period_ns / 1e6:g}"


def measure_paced(
    items: Sequence[PacedItem],
    providers: dict[str, Provider],
    device: str,
    *,
    seconds: float,
    progress: Callable[[float], None] | None = None,
) -> Paced:
    """Run the shared timeline for `seconds`; one row per candidate that was met more than WARM_UP times."""
    samples: dict[tuple[int, int, int], list[int]] = {}
    gathering: list[list[int]] = [[] for _ in items]
    handing_on: list[list[int]] = [[] for _ in items]
    loaded: dict[tuple[int, int, int], Loaded] = {}
    shapes: dict[tuple[int, int, int], str] = {}

    def set_up(i: int) -> None:
        """Load item i's candidates and run them once, then those of its follow-ups: these read what it hands on."""
        inputs = items[i].inputs(0)
        for a, chain in enumerate(items[i].chains):
            tensors = dict(inputs)
            for b, c in enumerate(chain):
                shapes[i, a, b] = shapes_text(c.subgraph, tensors)
                loaded[i, a, b] = load(c, providers[c.processor.provider], tensors)
                tensors.update(loaded[i, a, b].executable.run(tensors))
        items[i].outputs(0, tensors)
        for follower in items[i].follow_ups:
            set_up(follower)

    for i, item in enumerate(items):
        if not item.is_follow_up:
            set_up(i)
    turn = [0] * len(items)
    clock = time.perf_counter_ns

    def occur(i: int) -> None:
        item, index = items[i], turn[i]
        alternative = index % len(item.chains)
        turn[i] += 1
        begun = clock()
        tensors = item.inputs(index)
        gathered = clock()
        for position in range(len(item.chains[alternative])):
            run = loaded[i, alternative, position].executable.run
            start = clock()
            made = run(tensors)
            samples.setdefault((i, alternative, position), []).append(clock() - start)
            tensors.update(made)
        ended = clock()
        item.outputs(index, tensors)
        handing_on[i].append(clock() - ended)
        gathering[i].append(gathered - begun)
        for follower in item.follow_ups:
            turn[follower] = index  # the same job index, on the processor its parent just used
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
    for key, values in sorted(samples.items()):
        if len(values) > WARM_UP:
            i, a, b = key
            c, made = items[i].chains[a][b], loaded[key]
            rows.append(
                ProfileRow(
                    c.bundle.hash, device, c.processor.name, c.subgraph.name, shapes[key],
                    period_condition(items[i].period_ns), Latency.of(values[WARM_UP:]), made.first_run_ns, made.create_ns,
                    made.resident_bytes, timestamp(), versions(),
                )
            )  # fmt: skip
    return Paced(rows, _by_item(items, gathering), _by_item(items, handing_on))


def _by_item(items: Sequence[PacedItem], samples: list[list[int]]) -> dict[str, Latency]:
    return {item.name: Latency.of(s[WARM_UP:]) for item, s in zip(items, samples, strict=True) if len(s) > WARM_UP}
