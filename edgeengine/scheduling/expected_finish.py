"""The shortest expected finish of a job over all paths through its subgraphs, as Band computes it (Jeong et al., Band, MobiSys
2022; GetShortestLatencyWithUnitSubgraph in its engine).

    F = memo[end],  memo[stop] = min over moves (start -> stop on k) of  l(move) + max(w_k, memo[start])

w_k is the time until processor k is free, l the expected latency. No transfer costs, and a processor that overran its estimate
counts as free: so in the source.
"""

from __future__ import annotations

from edgeengine.scheduling.job import UNREACHABLE_NS, Job, Move
from edgeengine.scheduling.view import View


def waits_ns(view: View, now: int) -> list[int]:
    """w_k by processor index; UNREACHABLE_NS for a processor that is lost."""
    running = [(r.mask, r.remaining_ns(now)) for r in view.running()]
    return [
        max((left for mask, left in running if mask & p.mask), default=0) if p.available else UNREACHABLE_NS
        for p in view.processors
    ]


def expected_finish(job: Job, waits: list[int], position: int | None = None) -> tuple[int, Move | None]:
    """(F from now, the first move of that path) from where the job is, or from `position`; (UNREACHABLE_NS, None) when no
    processor is left for some subgraph.
    """
    task, first = job.task, job.position if position is None else position
    finish = [UNREACHABLE_NS] * (task.segments + 1)
    begun: list[Move | None] = [None] * (task.segments + 1)
    finish[first] = 0
    for at in range(first, task.segments):
        here = finish[at]
        if here >= UNREACHABLE_NS:
            continue
        for move in task.moves[at]:
            end = move.p50_ns + max(waits[move.processor.index], here)
            if end < finish[move.stop]:
                finish[move.stop] = end
                begun[move.stop] = begun[at] or move
    return finish[task.segments], begun[task.segments]
