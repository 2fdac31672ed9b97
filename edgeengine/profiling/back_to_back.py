"""Back to back: the latency of a subgraph run again and again, candidates interleaved so that drift hits all alike.

Per-node profiling is off: it slows small models twentyfold (see docs/design.md). The first run of each burst re-warms the caches
that the previous candidate emptied and is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby

from edgeengine.devices.providers import Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import run_pinned
from edgeengine.profiling.candidate import Candidate, Loaded, load, shapes_text, timestamp, versions
from edgeengine.spec import Latency, ProfileRow

BACK_TO_BACK = "back_to_back"
BURST = 3  # counted runs per candidate and round
MIN_ROUNDS, MAX_ROUNDS = 4, 40


def measure_back_to_back(
    candidates: Sequence[Candidate],
    tensors: dict[str, Tensors],
    providers: dict[str, Provider],
    device: str,
    *,
    budget_s: float,
    progress: Callable[[float], None] | None = None,
) -> list[ProfileRow]:
    """Measure until every candidate had MAX_ROUNDS rounds or `budget_s` is over (at least MIN_ROUNDS rounds).

    `tensors` holds the chain's tensors by bundle hash. Rows come in the order of `candidates`.
    """
    loaded = _load_all(candidates, tensors, providers)
    samples: list[list[int]] = [[] for _ in candidates]
    by_core = sorted(range(len(candidates)), key=lambda i: (candidates[i].processor.name, i))
    groups = [list(g) for _, g in groupby(by_core, key=lambda i: candidates[i].processor.name)]
    end = time.monotonic() + budget_s
    for done in range(MAX_ROUNDS):
        if done >= MIN_ROUNDS and time.monotonic() > end:
            break
        for group in groups:
            run_pinned(candidates[group[0]].processor, lambda g=group: _round(g, candidates, loaded, tensors, samples))  # type: ignore[misc]
        if progress is not None:
            progress(max((done + 1) / MAX_ROUNDS, min(1 - (end - time.monotonic()) / budget_s, 1)))
    return [_row(c, made, s, tensors[c.bundle.hash], device) for c, made, s in zip(candidates, loaded, samples, strict=True)]


def _load_all(candidates: Sequence[Candidate], tensors: dict[str, Tensors], providers: dict[str, Provider]) -> list[Loaded]:
    """Processors may share a session (core 0, core 1): what it cost to make it is what it cost the first of them."""
    first: dict[int, Loaded] = {}
    loaded = (load(c, providers[c.processor.provider], tensors[c.bundle.hash]) for c in candidates)
    return [first.setdefault(id(made.executable), made) for made in loaded]


def _round(
    group: list[int], candidates: Sequence[Candidate], loaded: list[Loaded], tensors: dict[str, Tensors], samples: list[list[int]]
) -> None:
    clock = time.perf_counter_ns
    for i in group:
        run, feeds = loaded[i].executable.run, tensors[candidates[i].bundle.hash]
        run(feeds)
        for _ in range(BURST):
            begun = clock()
            run(feeds)
            samples[i].append(clock() - begun)


def _row(candidate: Candidate, loaded: Loaded, samples: list[int], tensors: Tensors, device: str) -> ProfileRow:
    return ProfileRow(
        bundle=candidate.bundle.hash,
        device=device,
        processor=candidate.processor.name,
        subgraph=candidate.subgraph.name,
        shapes=shapes_text(candidate.subgraph, tensors),
        condition=BACK_TO_BACK,
        latency=Latency.of(samples),
        first_run_ns=loaded.first_run_ns,
        create_ns=loaded.create_ns,
        resident_bytes=loaded.resident_bytes,
        measured_at=timestamp(),
        versions=versions(),
    )
