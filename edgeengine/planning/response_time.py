"""Response-time analysis of chains of non-preemptive subgraphs under fixed priorities, on several processors.

Processors that exclude each other form a group that is analysed as one server: while a guaranteed job waits there, nothing of
lower priority begins. A stage is a stretch of a chain in one group. It can be delayed by one subgraph of lower priority that has
just begun, and by all stages of higher priority:

    w = max(B, own) + (C - last) + sum over higher stages k in the group of ceil((w + J_k + 1) / T_k) C_k
    R = J + w + last,   J of the next stage = R

(of n jobs of a weakly-hard task that keeps to its pattern, at most ceil(n met / of) count)

B: the longest subgraph of lower priority; own: the stage's longest, which covers the push-through of its previous job (Davis,
Burns, Bril & Lukkien 2007, the sufficient test for non-preemptive messages); last: its last subgraph, not preempted once begun. J
of the first stage: how late a release can be seen. Sound for R <= T. All times are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """`total_ns` in one group, of which the longest and the last subgraph."""

    group: int
    total_ns: int
    longest_ns: int
    last_ns: int


@dataclass(frozen=True)
class Chain:
    """One task's stages, due `deadline_ns` after the release; they begin when the job of `after`, if any, has ended. Of `firm` =
    (met, of): so many of any `of` consecutive jobs are analysed, spread evenly (see scheduling.weakly_hard).
    """

    name: str
    period_ns: int
    deadline_ns: int
    stages: tuple[Stage, ...]
    jitter_ns: int = 0
    after: str | None = None
    firm: tuple[int, int] = (1, 1)

    @property
    def limit_ns(self) -> int:
        """Sound up to here."""
        return min(self.deadline_ns, self.period_ns)


FAR = 8  # a response of so many times its limit is not looked at

Interference = tuple[int, int, int, int, int]  # (J, T, C) of a stage of higher priority, (met, of) of its task


def response_ns(
    chain: Chain, jitter_ns: int, higher: dict[int, list[Interference]], blocking: dict[int, int], limit_ns: int
) -> list[int] | None:
    """The latest end of each stage, counted from the release; None beyond `limit_ns`.

    `higher` by group; `blocking`: by group, the longest subgraph that may have begun before a stage arrives.
    """
    arrival, ends = jitter_ns, []
    for stage in chain.stages:
        wait = _start_ns(stage, higher.get(stage.group, []), blocking.get(stage.group, 0), limit_ns - arrival)
        if wait is None or arrival + wait + stage.last_ns > limit_ns:
            return None
        arrival += wait + stage.last_ns
        ends.append(arrival)
    return ends


def _start_ns(stage: Stage, higher: Sequence[Interference], blocking: int, limit: int) -> int | None:
    """Longest wait from the arrival of the stage to the start of its last subgraph."""
    own = stage.longest_ns if higher else 0  # nothing can be pushed through where nothing has more priority
    fixed = max(blocking, own) + stage.total_ns - stage.last_ns
    wait = fixed
    while wait <= limit:
        more = fixed + sum(-(-(-(-(wait + j + 1) // t) * met) // of) * c for j, t, c, met, of in higher)
        if more == wait:
            return wait
        wait = more
    return None


def analyse(chains: Sequence[Chain], other: dict[int, int]) -> dict[str, list[int]]:
    """Ends of the stages by chain, for chains in order of priority, parents before children; up to the first that is too late.

    `other`: by group, the longest subgraph of work outside the chains.
    """
    return _walk(chains, other)[0]


def progress(chains: Sequence[Chain], other: dict[int, int]) -> float:
    """How many chains pass, plus how near the first that does not comes (limit / response): what a search can climb."""
    found, near = _walk(chains, other)
    return len(found) + near


def _walk(chains: Sequence[Chain], other: dict[int, int]) -> tuple[dict[str, list[int]], float]:
    found: dict[str, list[int]] = {}
    higher: dict[int, list[Interference]] = {}
    lower, below = dict(other), []  # longest subgraph of less priority by group: of all, and for each chain from the last
    for chain in reversed(chains):
        below.append(lower)
        lower = dict(lower)
        for stage in chain.stages:
            lower[stage.group] = max(lower.get(stage.group, 0), stage.longest_ns)
    for chain, blocking in zip(chains, reversed(below), strict=True):
        jitter = max(chain.jitter_ns, found[chain.after][-1] if chain.after is not None else 0)
        ends = response_ns(chain, jitter, higher, blocking, chain.limit_ns)
        if ends is None:
            late = response_ns(chain, jitter, higher, blocking, FAR * chain.limit_ns)
            return found, 0.0 if late is None else chain.limit_ns / late[-1]
        found[chain.name] = ends
        for stage, arrival in zip(chain.stages, [jitter, *ends]):
            higher.setdefault(stage.group, []).append((arrival, chain.period_ns, stage.total_ns, *chain.firm))
    return found, 0.0
