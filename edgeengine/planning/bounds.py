"""What admission reckons with: how long a step may take, which processors count as one server, routes, and the order of tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgeengine.planning.blocking import rank
from edgeengine.spec import Plan, Step
from edgeengine.workload import Task, Workload

MOST_ROUTES = 32  # per task, the shortest
Route = tuple[Step, ...]


@dataclass(frozen=True)
class Bounds:
    """What a step may take, by the plan: margin x p99, and what the machine adds, company and transfers included. Throttling is
    not: a hot device's latencies are others.
    """

    plan: Plan
    margin: float

    def of(self, task: str, step: Step) -> int:
        around = self.plan.task(task).around or self.plan.overheads.get("around")
        added = [around, self.plan.overheads.get("handoff"), self.plan.overheads.get("next")]
        alone = step.latency.p99_ns * self.margin + sum(latency.max_ns for latency in added if latency is not None)
        return round(alone * self._company(step.processor)) + self._transfers_ns(step)

    def _company(self, processor: str) -> float:
        """By which factor all other processors together slow this one down (see simulation.contention)."""
        effects = self.plan.effects
        factors = effects.slowdown.get(processor, {}) if effects is not None else {}
        return 1 + sum(factor - 1 for other, factor in factors.items() if other != processor)

    def _transfers_ns(self, step: Step) -> int:
        """The inputs from the farthest memory, the outputs to the host's."""
        effects = self.plan.effects
        if effects is None:
            return 0
        memory = {p.name: p.memory for p in self.plan.processors}
        here = memory[step.processor]
        inputs = max(effects.transfer_ns(source, here, step.input_bytes) for source in {"host", *memory.values()})
        return inputs + effects.transfer_ns(here, "host", step.output_bytes)

    @property
    def jitter_ns(self) -> int:
        """How late the timer may be with a release."""
        return sum(self.plan.overheads[name].max_ns for name in ("timer", "release") if name in self.plan.overheads)


def period_ns(workload: Workload, task: Task) -> int | None:
    """The least time between releases; None where it is not known."""
    while task.period_ns is None and task.after is not None and task.arrivals is None:
        task = workload.task(task.after)
    return task.period_ns


def in_order(workload: Workload) -> list[Task]:
    """By class, then deadline; a parent counts as critical as its most critical descendant, and comes before its children."""
    by_name = {t.name: t for t in workload.tasks}
    urgency = {t.name: (rank(t), t.relative_deadline_ns or 1 << 62) for t in workload.tasks}
    for task in workload.tasks:
        parent = task.after
        while parent is not None:
            urgency[parent] = min(urgency[parent], urgency[task.name])
            parent = by_name[parent].after

    def depth(task: Task) -> int:
        return 0 if task.after is None else 1 + depth(by_name[task.after])

    return sorted(workload.tasks, key=lambda t: (urgency[t.name], depth(t)))


def groups(plan: Plan) -> dict[str, int]:
    """Processors by group: those that share a resource, directly or through a third that some step uses, are in one."""
    used = [p for p in plan.processors if any(s.processor == p.name for t in plan.tasks for s in t.steps)]
    group = {p.name: i for i, p in enumerate(used)}
    for p in used:
        for q in used:
            if p.conflicts(q):
                old, new = group[p.name], group[q.name]
                group = {name: new if g == old else g for name, g in group.items()}
    return group


def routes_of(steps: Sequence[Step], segments: int, length: Callable[[Step], int]) -> list[Route]:
    """The shortest paths from 0 to `segments`, at most MOST_ROUTES are kept at each position."""
    kept: dict[int, list[tuple[int, int, Route]]] = {0: [(0, 0, ())]}
    count = 0
    for position in range(segments):
        here = sorted(kept.get(position, []), key=lambda found: found[:2])[:MOST_ROUTES]
        for step in (s for s in steps if s.start == position):
            for ns, _, route in here:
                count += 1
                kept.setdefault(step.stop, []).append((ns + length(step), count, (*route, step)))
    return [route for _, _, route in sorted(kept.get(segments, []), key=lambda found: found[:2])[:MOST_ROUTES]]
