"""Response-time analysis of chains of non-preemptive subgraphs under fixed priorities, on several processors.

Processors that exclude each other form a group that is analysed as one server: while a guaranteed job waits there, nothing of
lower priority begins. A stage is a stretch of a chain in one group. It can be delayed by one subgraph of lower priority that has
just begun, and by all stages of higher priority. For the jobs q = 0, 1, … of the busy period that it begins:

    w(q) = B + q C + (C - last) + sum over higher stages k in the group of ceil((w(q) + J_k + 1) / T_k) C_k
    R = max over q of J + w(q) - q T + last,   J of the next stage = R

(of n jobs of a weakly-hard task that keeps to its pattern, at most ceil(n met / of) count)

B: the longest subgraph of lower priority; last: the stage's last subgraph, not preempted once begun. A job's own last subgraph
may push others into the next job's time, so that later jobs of a busy period may wait longer than the first (Davis, Burns, Bril
& Lukkien 2007, for messages; Bril, Lukkien & Verhaegh 2009, for deferred preemption). J of the first stage: how late a release
can be seen. Sound for R <= T. All times are nanoseconds.
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
MOST_JOBS = 8  # of a busy period, looked at one by one

Interference = tuple[int, int, int, int, int]  # (J, T, C) of a stage of higher priority, (met, of) of its task


def response_ns(
    chain: Chain, jitter_ns: int, higher: dict[int, list[Interference]], blocking: dict[int, int], limit_ns: int
) -> list[int] | None:
    """The latest end of each stage, counted from the release; None beyond `limit_ns`.

    `higher` by group; `blocking`: by group, the longest subgraph that may have begun before a stage arrives.
    """
    arrival, ends = jitter_ns, []
    for stage in chain.stages:
        others = [s.longest_ns for s in chain.stages if s.group == stage.group and s is not stage]
        on_group, blocked = higher.get(stage.group, []), blocking.get(stage.group, 0)
        wait = _wait_ns(stage, chain.period_ns, arrival, on_group, blocked, max(others, default=None), limit_ns - arrival)
        if wait is None or arrival + wait + stage.last_ns > limit_ns:
            return None
        arrival += wait + stage.last_ns
        ends.append(arrival)
    return ends


def _wait_ns(
    stage: Stage, period: int, jitter: int, higher: Sequence[Interference], blocking: int, revisit: int | None, limit: int
) -> int | None:
    """Longest wait from the arrival of the stage to the start of its last subgraph. `revisit`: the longest subgraph of the
    chain's other stages in this group, if there are any.
    """
    before = stage.total_ns - stage.last_ns
    if not higher:  # nothing can be pushed through where nothing has more priority
        return max(blocking, revisit or 0) + before
    jobs = MOST_JOBS + 1 if revisit is not None else _jobs(stage, period, jitter, higher, blocking)
    if jobs > MOST_JOBS:  # taken as if the own subgraph that may have pushed others here were one of lower priority
        return _start_ns(max(blocking, stage.longest_ns, revisit or 0) + before, higher, limit)
    worst = 0
    for q in range(jobs):
        wait = _start_ns(blocking + q * stage.total_ns + before, higher, limit + q * period)
        if wait is None:
            return None
        worst = max(worst, wait - q * period)
    return worst


def _jobs(stage: Stage, period: int, jitter: int, higher: Sequence[Interference], blocking: int) -> int:
    """How many jobs of the stage its longest busy period holds; more than MOST_JOBS are not counted."""
    length, most = 0, MOST_JOBS * period - jitter
    longer = blocking + stage.total_ns
    while length < longer <= most:
        length = longer
        longer = blocking - (-(length + jitter) // period) * stage.total_ns + _demand(length, higher)
    return MOST_JOBS + 1 if longer > most else -(-(length + jitter) // period)


def _start_ns(fixed: int, higher: Sequence[Interference], limit: int) -> int | None:
    """The first instant that `fixed` and what arrives of the higher stages until then leave free; None beyond the limit."""
    wait = fixed
    while wait <= limit:
        more = fixed + _demand(wait + 1, higher)
        if more == wait:
            return wait
        wait = more
    return None


def _demand(length: int, higher: Sequence[Interference]) -> int:
    return sum(-(-(-(-(length + j) // t) * met) // of) * c for j, t, c, met, of in higher)


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
