"""The mapper: searches chains of candidate subgraphs for the shortest latency, and believes only what it measures.

Predictions (sums of measured candidates) rank the chains; the best few and every whole model on one processor are then measured
end to end. The winner is never slower than the best whole model, because that one is among them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass

from edgeengine.errors import PlanInfeasible
from edgeengine.profiling import HANDOVER_NS, Candidate
from edgeengine.spec import Latency

FINALISTS = 3  # predicted chains measured besides the whole models
WORTH_CUTTING = 0.98  # a cut model must be at least 2 % faster: less is noise, and parts cost memory

Chain = tuple[Candidate, ...]
MeasureChains = Callable[[Sequence[Chain]], Sequence[Latency]]


@dataclass(frozen=True)
class Mapping:
    """The chosen chain; its measured p50 and that of the best whole model on one processor."""

    chain: Chain
    measured_ns: int
    whole_ns: int | None
    whole_processor: str


def map_task(
    candidates: Sequence[Candidate], latency: MappingOf[tuple[str, str], Latency], segments: int, measure: MeasureChains
) -> Mapping:
    """Choose a chain from position 0 to `segments`.

    `candidates`: what may run where (equivalent processors only once); `latency` by (subgraph, processor).
    Raises PlanInfeasible when no chain covers the model.
    """
    wholes: list[Chain] = [(c,) for c in candidates if c.subgraph.start == 0 and c.subgraph.stop == segments]
    predicted = _shortest_chains(candidates, latency, segments, FINALISTS + len(wholes))
    chains = wholes + [c for c in predicted if len(c) > 1][:FINALISTS]
    if not chains:
        raise PlanInfeasible("no processor can run every part of the model")
    measured = [m.p50_ns for m in measure(chains)]
    best_whole = min(range(len(wholes)), key=measured.__getitem__, default=None)
    best = min(range(len(chains)), key=measured.__getitem__)
    if best_whole is not None and best != best_whole:
        # The least of several noisy figures is too low by itself: it must win by as much once more.
        if measured[best] <= WORTH_CUTTING * measured[best_whole]:
            measured[best_whole], measured[best] = (m.p50_ns for m in measure([chains[best_whole], chains[best]]))
        if measured[best] > WORTH_CUTTING * measured[best_whole]:
            best = best_whole
    return Mapping(
        chain=chains[best],
        measured_ns=measured[best],
        whole_ns=None if best_whole is None else measured[best_whole],
        whole_processor="" if best_whole is None else wholes[best_whole][0].processor.name,
    )


def _shortest_chains(
    candidates: Sequence[Candidate], latency: MappingOf[tuple[str, str], Latency], segments: int, count: int
) -> list[Chain]:
    """The `count` chains of least predicted latency, best first: dynamic programming, `count` kept per position."""
    kept: list[list[tuple[int, int, Chain]]] = [[] for _ in range(segments + 1)]
    kept[0] = [(0, 0, ())]
    order = 0  # tie-breaker: chains do not compare
    for position in range(segments):
        kept[position] = heapq.nsmallest(count, kept[position])
        for c in (c for c in candidates if c.subgraph.start == position):
            cost = latency[c.subgraph.name, c.processor.name].p50_ns
            for so_far, _, chain in kept[position]:
                handover = HANDOVER_NS if chain and chain[-1].processor != c.processor else 0
                order += 1
                kept[c.subgraph.stop].append((so_far + cost + handover, order, (*chain, c)))
    return [chain for _, _, chain in heapq.nsmallest(count, kept[segments])]
