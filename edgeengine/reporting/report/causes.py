"""Why a job missed its deadline: how long it waited, for whom, and how much longer than expected it ran itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from edgeengine.reporting.report.run import JobRecord, Run, Span


@dataclass(frozen=True)
class Explanation:
    """`waited_ns` from release to end without running; `blockers`: who held the processors it could have used meanwhile, by task
    and how long, the longest first. `ran_ns` against `expected_ns`, the plan's medians of the same subgraphs.
    """

    job: JobRecord
    waited_ns: int
    blockers: tuple[tuple[str, int], ...]
    ran_ns: int
    expected_ns: int

    @property
    def reason(self) -> str:
        """The main reason in a few words: jobs that share one are alike."""
        if self.job.outcome in ("failed", "rejected") or self.job.cause == "parent":
            return self.job.cause or self.job.outcome
        excess_ns = self.ran_ns - self.expected_ns
        if self.blockers and self.waited_ns >= excess_ns:
            return f"waited for {self.blockers[0][0]}"
        if excess_ns > 0 and excess_ns >= self.waited_ns:
            return "ran longer than expected"
        return self.job.cause or "waited"

    @property
    def sentence(self) -> str:
        job = self.job
        parts = [f"{job.outcome}: {job.cause}" if job.cause else job.outcome]
        if job.outcome == "late" and job.deadline_ns is not None:
            parts = [f"late by {_ms(job.end_ns - job.deadline_ns)}"]
        waited = f"waited {_ms(self.waited_ns)}"
        if self.blockers:
            waited += " (" + ", ".join(f"{who} ran {_ms(ns)}" for who, ns in self.blockers[:3]) + ")"
        parts.append(waited)
        if self.ran_ns:
            parts.append(f"ran {_ms(self.ran_ns)}, {_ms(self.expected_ns)} expected")
        return "; ".join(parts)


def explain(run: Run) -> list[Explanation]:
    """Of every job that was not met, in order of release."""
    usable = {t.task: {s.processor for s in t.steps} for t in run.plan.tasks}
    held = {p.name: set(p.resources) for p in run.plan.processors}
    expected = {(t.task, s.subgraph, s.processor): s.latency.p50_ns for t in run.plan.tasks for s in t.steps}
    spans = sorted(run.spans, key=lambda s: s.start_ns)
    found = []
    for job in sorted(run.missed, key=lambda j: (j.release_ns, j.task)):
        wanted = set().union(*(held[p] for p in usable.get(job.task, ())))
        rivals = [s for s in spans if s.end_ns > job.release_ns and s.start_ns < job.end_ns and held[s.processor] & wanted]
        blocked: Counter[str] = Counter()
        waits = list(_waits(job))
        for span in rivals:
            if (span.task, span.index) != (job.task, job.index):
                blocked[span.task] += sum(_overlap(span, a, b) for a, b in waits)
        ran_ns = sum(s.end_ns - s.start_ns for s in job.spans)
        expected_ns = sum(expected.get((s.task, s.subgraph, s.processor), 0) for s in job.spans)
        longest = tuple((who, ns) for who, ns in blocked.most_common() if ns)
        found.append(Explanation(job, sum(b - a for a, b in waits), longest, ran_ns, expected_ns))
    return found


def _waits(job: JobRecord) -> Iterator[tuple[int, int]]:
    """Intervals between release and end in which the job did not run."""
    at = job.release_ns
    for span in sorted(job.spans, key=lambda s: s.start_ns):
        if span.start_ns > at:
            yield at, span.start_ns
        at = max(at, span.end_ns)
    if job.end_ns > at:
        yield at, job.end_ns


def _overlap(span: Span, start_ns: int, end_ns: int) -> int:
    return max(min(span.end_ns, end_ns) - max(span.start_ns, start_ns), 0)


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.3g} ms"
