"""At its period: the latency of a subgraph that runs now and then, between and beside the others, as it will in service.

Tight-loop figures do not hold there: caches are cold, cores have slept, the other cores use the memory too (a MatMul every 30 ms
takes 1.5-2 times its back-to-back time; onnxruntime#16135, #17711). All items share one timeline, each at its own period; what
holds different resources runs side by side.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from edgeengine.devices.providers import Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import WORKER_PRIORITY, real_time, start_pinned
from edgeengine.profiling.candidate import Candidate, Loaded, load, shapes_text, timestamp, versions
from edgeengine.spec import Latency, Processor, ProfileRow

WARM_UP = 1  # occurrences of each candidate that are not counted


class PacedItem(NamedTuple):
    """A job as it will run: its chain, one subgraph after the other, on each of several processors in turn.

    `chains` holds the same subgraphs on each of these processors. `inputs(index)` gathers what the chain reads, as a worker
    would; `outputs(index, tensors)` hands on what it made. `follow_ups`: positions of the items that run right after this one
    (`after`), which have no timeline of their own. `urgent`: its worker will have real-time priority, where permitted.
    """

    name: str
    chains: Sequence[Sequence[Candidate]]
    inputs: Callable[[int], Tensors]
    outputs: Callable[[int, Tensors], None]
    period_ns: int
    follow_ups: tuple[int, ...] = ()
    is_follow_up: bool = False
    urgent: bool = True


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
    return _Timeline(items, providers, progress).measure(device, seconds) if items else Paced([], {}, {})


class _Timeline:
    """One thread per processor, each with the occurrences due there; a lock per resource keeps exclusive ones apart."""

    def __init__(self, items: Sequence[PacedItem], providers: dict[str, Provider], progress: Callable[[float], None] | None):
        self._items, self._progress = items, progress
        self._loaded: dict[tuple[int, int, int], Loaded] = {}  # by item, chain, position
        self._shapes: dict[tuple[int, int, int], str] = {}
        self._runs: dict[tuple[int, int, int], list[int]] = {}
        self._gathering: list[list[int]] = [[] for _ in items]
        self._handing_on: list[list[int]] = [[] for _ in items]
        self._processors: dict[str, Processor] = {
            c.processor.name: c.processor for i in items for chain in i.chains for c in chain
        }
        self._resources = {r: threading.Lock() for p in self._processors.values() for r in p.resources}
        self._due: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self._processors}  # (at, item, index)
        self._changed = threading.Condition()
        for i, item in enumerate(items):
            if not item.is_follow_up:
                self._set_up(i, providers)

    def _set_up(self, i: int, providers: dict[str, Provider]) -> None:
        """Load item i's candidates and run them once, then those of its follow-ups: these read what it hands on."""
        inputs, tensors = self._items[i].inputs(0), Tensors()
        for a, chain in enumerate(self._items[i].chains):
            tensors = dict(inputs)
            for b, c in enumerate(chain):
                self._shapes[i, a, b] = shapes_text(c.subgraph, tensors)
                self._loaded[i, a, b] = load(c, providers[c.processor.provider], tensors)
                tensors.update(self._loaded[i, a, b].executable.run(tensors))
        self._items[i].outputs(0, tensors)
        for follower in self._items[i].follow_ups:
            self._set_up(follower, providers)

    def measure(self, device: str, seconds: float) -> Paced:
        start = time.monotonic_ns()
        self._stop_ns = start + round(seconds * 1e9)
        for i, item in enumerate(self._items):
            if not item.is_follow_up:
                self._plan(i, 0, start + item.period_ns)
        waits = [start_pinned(p, lambda p=p: self._work(p)) for p in self._processors.values()]  # type: ignore[misc]
        while self._progress is not None and (now := time.monotonic_ns()) < self._stop_ns:
            self._progress((now - start) / (self._stop_ns - start))
            time.sleep(0.25)
        for wait in waits:
            wait()
        rows = [self._row(key, values, device) for key, values in sorted(self._runs.items()) if len(values) > WARM_UP]
        return Paced(rows, self._by_item(self._gathering), self._by_item(self._handing_on))

    def _plan(self, i: int, index: int, at_ns: int) -> None:
        """Put the item's next occurrence on the processor whose turn it is."""
        chains = self._items[i].chains
        with self._changed:
            heapq.heappush(self._due[chains[index % len(chains)][0].processor.name], (at_ns, i, index))
            self._changed.notify_all()

    def _work(self, processor: Processor) -> None:
        real_time(WORKER_PRIORITY)
        due = self._due[processor.name]
        while True:
            with self._changed:
                now = time.monotonic_ns()
                if now >= self._stop_ns:
                    return
                if not due or due[0][0] > now:
                    until = min(due[0][0] if due else self._stop_ns, self._stop_ns)
                    self._changed.wait((until - now) / 1e9)
                    continue
                at_ns, i, index = heapq.heappop(due)
            with ExitStack() as held:
                for resource in sorted(processor.resources):
                    held.enter_context(self._resources[resource])
                self._occur(i, index)
            period_ns = self._items[i].period_ns
            missed = max(time.monotonic_ns() - at_ns, 0) // period_ns  # never catch up in a burst
            self._plan(i, index + 1, at_ns + period_ns * (1 + missed))

    def _occur(self, i: int, index: int) -> None:
        """One job: gather, run the chain, hand on; then the follow-ups, on the same processor."""
        item, clock = self._items[i], time.perf_counter_ns
        a = index % len(item.chains)
        begun = clock()
        tensors = dict(item.inputs(index))
        gathered = clock()
        for b in range(len(item.chains[a])):
            run = self._loaded[i, a, b].executable.run
            if not item.urgent:
                real_time(0)
            start = clock()
            made = run(tensors)
            self._runs.setdefault((i, a, b), []).append(clock() - start)
            if not item.urgent:
                real_time(WORKER_PRIORITY)
            tensors.update(made)
        ended = clock()
        item.outputs(index, tensors)
        self._handing_on[i].append(clock() - ended)
        self._gathering[i].append(gathered - begun)
        for follower in item.follow_ups:
            self._occur(follower, index)

    def _row(self, key: tuple[int, int, int], values: list[int], device: str) -> ProfileRow:
        i, a, b = key
        c, made = self._items[i].chains[a][b], self._loaded[key]
        return ProfileRow(
            bundle=c.bundle.hash,
            device=device,
            processor=c.processor.name,
            subgraph=c.subgraph.name,
            shapes=self._shapes[key],
            condition=period_condition(self._items[i].period_ns),
            latency=Latency.of(values[WARM_UP:]),
            first_run_ns=made.first_run_ns,
            create_ns=made.create_ns,
            resident_bytes=made.resident_bytes,
            measured_at=timestamp(),
            versions=versions(),
        )

    def _by_item(self, samples: list[list[int]]) -> dict[str, Latency]:
        return {i.name: Latency.of(s[WARM_UP:]) for i, s in zip(self._items, samples, strict=True) if len(s) > WARM_UP}
