"""Admission: which tasks can be guaranteed their deadlines before anything runs, and what would make the others fit.

Tasks are taken by criticality, then by deadline (deadline monotonic, children right after their parents). Each gets the route
through its steps that leaves it in time by response-time analysis (see response_time), with every subgraph at its p99 times a
margin, plus the machine's overheads; what is already guaranteed stays so. Where a longer subgraph of a task without guarantee
would block it, that step is taken out of the other's plan if another way is left. The verdict is for policies that start
guaranteed jobs first (see scheduling.guaranteed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from edgeengine.planning.blocking import rank
from edgeengine.planning.response_time import Chain, Stage, analyse
from edgeengine.spec import Guarantee, Plan, Step, TaskPlan
from edgeengine.workload import Task, Workload

MARGIN = 1.2  # on the p99: a sample's p99 is not the worst that comes
MOST_ROUTES = 32  # per task, the shortest
GUARANTEED, BEST_EFFORT, REFUSED = "guaranteed", "best effort", "refused"

Route = tuple[Step, ...]


@dataclass(frozen=True)
class Bounds:
    """What a step may take, by the plan: margin x p99, and what the machine adds."""

    plan: Plan
    margin: float

    def of(self, task: str, step: Step) -> int:
        around = self.plan.task(task).around or self.plan.overheads.get("around")
        added = [around, self.plan.overheads.get("handoff"), self.plan.overheads.get("next")]
        return round(step.latency.p99_ns * self.margin) + sum(latency.max_ns for latency in added if latency is not None)

    @property
    def jitter_ns(self) -> int:
        """How late the timer may be with a release."""
        return sum(self.plan.overheads[name].max_ns for name in ("timer", "release") if name in self.plan.overheads)


def admit(workload: Workload, plan: Plan, *, margin: float = MARGIN, memory_bytes: int | None = None) -> Plan:
    """The plan with a verdict and its reason for every task. `memory_bytes`: what sessions may take, None = not checked."""
    return _Admission(workload, plan, margin, memory_bytes).run()


class _Admission:
    def __init__(self, workload: Workload, plan: Plan, margin: float, memory_bytes: int | None):
        self._workload, self._margin, self._memory = workload, margin, memory_bytes
        self._bounds = Bounds(plan, margin)
        self._plan = plan
        self._group = groups(plan)
        self._steps = {t.task: t.steps for t in plan.tasks}  # what is still allowed
        self._chains: list[Chain] = []  # guaranteed so far, by priority
        self._routes: dict[str, Route] = {}

    def run(self) -> Plan:
        verdicts: dict[str, tuple[str, str]] = {}
        left = self._memory
        for task in in_order(self._workload):
            needs = self._plan.task(task.name).resident_bytes
            if left is not None and needs is not None and needs > left:
                verdicts[task.name] = (REFUSED, f"its sessions take {needs / 1e6:.3g} MB, {left / 1e6:.3g} MB are left")
                self._steps[task.name] = ()
                continue
            left = left - needs if left is not None and needs is not None else left
            verdicts[task.name] = self._judge(task)
        ends = {name: e[-1] for name, e in analyse(self._chains, self._others()).items()}
        return msgspec.structs.replace(
            self._plan, tasks=tuple(self._verdict(t, *verdicts[t.task], ends.get(t.task)) for t in self._plan.tasks)
        )

    def _verdict(self, plan: TaskPlan, verdict: str, reason: str, response_ns: int | None) -> TaskPlan:
        guarantee = None
        if response_ns is not None:
            priority = next(i for i, c in enumerate(self._chains) if c.name == plan.task)
            route = tuple((s.subgraph, s.processor) for s in self._routes[plan.task])
            guarantee = Guarantee(priority, route, response_ns, self._margin)
            deadline = self._chains[priority].deadline_ns
            reason = (
                f"ends within {response_ns / 1e6:.3g} of {deadline / 1e6:.3g} ms while no subgraph takes more than "
                f"{self._margin:g} x its p99"
            )
        return msgspec.structs.replace(
            plan, steps=self._steps[plan.task] or plan.steps, verdict=verdict, reason=reason, guarantee=guarantee
        )

    def _judge(self, task: Task) -> tuple[str, str]:
        why_not = self._not_eligible(task)
        if why_not:
            return BEST_EFFORT, why_not
        routes = self._routes_of(task)
        deadline = task.relative_deadline_ns
        assert deadline is not None
        if not routes:
            return REFUSED, "no processor can run it"
        alone = min(self._length(task, r) for r in routes)
        if alone > deadline:
            return REFUSED, (
                f"takes {alone / 1e6:.3g} ms alone ({self._margin:g} x p99), its deadline is {deadline / 1e6:.3g} ms: "
                f"it fits with deadline_ms = {alone / 1e6:.3g} at least"
            )
        if any(self._try(task, route) for route in routes) or any(self._try_clearing(task, route) for route in routes):
            return GUARANTEED, ""
        verdict = REFUSED if task.criticality == "high" else BEST_EFFORT
        return verdict, f"{self._what_would_fit(task, routes)}"

    def _not_eligible(self, task: Task) -> str:
        if task.is_training:
            return "training takes what is left"
        if task.relative_deadline_ns is None:
            return "it has no deadline"
        if period_ns(self._workload, task) is None:
            return "nothing is known of the least time between its releases"
        if task.after is not None and task.after not in self._routes:
            return f"it waits for {task.after}, which has no guarantee"
        if task.after is not None and period_ns(self._workload, task) != period_ns(
            self._workload, self._workload.task(task.after)
        ):
            return f"its releases are not those of {task.after}"
        return ""

    # ---- one task on one route ----

    def _try(self, task: Task, route: Route, period: int | None = None) -> bool:
        """Guarantee the task on this route if it and all before it stay in time. With `period` only say so."""
        chain = self._chain(task, route, period)
        trial = dict(self._steps) | {task.name: route}
        if len(analyse([*self._chains, chain], self._others(trial, besides=task.name))) <= len(self._chains):
            return False
        if period is None:
            self._chains.append(chain)
            self._routes[task.name] = route
            self._steps = trial
        return True

    def _try_clearing(self, task: Task, route: Route) -> bool:
        """As `_try`, without the longest subgraphs of tasks that have no guarantee yet, where these have another way."""
        before = self._steps
        groups_used = {self._group[s.processor] for s in route}
        lengths = sorted({
            self._bounds.of(name, s) for name, steps in before.items() if name not in self._routes and name != task.name
            for s in steps if self._group[s.processor] in groups_used
        }, reverse=True)  # fmt: skip
        for most in [*lengths[1:], 0]:
            self._steps = {n: self._shorter(n, steps, groups_used, most, task.name) for n, steps in before.items()}
            if self._try(task, route):
                return True
        self._steps = before
        return False

    def _shorter(self, name: str, steps: tuple[Step, ...], used: set[int], most_ns: int, besides: str) -> tuple[Step, ...]:
        if name in self._routes or name == besides:
            return steps
        kept = tuple(s for s in steps if self._group[s.processor] not in used or self._bounds.of(name, s) <= most_ns)
        return kept if routes_of(kept, self._plan.task(name).segments, lambda s: s.latency.p50_ns) else steps

    def _chain(self, task: Task, route: Route, period: int | None = None) -> Chain:
        own_period = period or period_ns(self._workload, task)
        assert own_period is not None and task.relative_deadline_ns is not None
        stages: list[Stage] = []
        for step in route:
            ns, group = self._bounds.of(task.name, step), self._group[step.processor]
            if stages and stages[-1].group == group:
                s = stages[-1]
                stages[-1] = Stage(group, s.total_ns + ns, max(s.longest_ns, ns), ns)
            else:
                stages.append(Stage(group, ns, ns, ns))
        return Chain(task.name, own_period, task.relative_deadline_ns, tuple(stages), self._bounds.jitter_ns, task.after)

    def _others(self, steps: dict[str, tuple[Step, ...]] | None = None, besides: str = "") -> dict[int, int]:
        """By group, the longest subgraph of tasks without a guarantee."""
        longest: dict[int, int] = {}
        for name, allowed in (steps or self._steps).items():
            if name not in self._routes and name != besides:
                for step in allowed:
                    group = self._group[step.processor]
                    longest[group] = max(longest.get(group, 0), self._bounds.of(name, step))
        return longest

    def _routes_of(self, task: Task) -> list[Route]:
        return routes_of(self._steps[task.name], self._plan.task(task.name).segments, lambda s: self._bounds.of(task.name, s))

    def _length(self, task: Task, route: Route) -> int:
        return sum(self._bounds.of(task.name, s) for s in route)

    # ---- what would make it fit ----

    def _what_would_fit(self, task: Task, routes: Sequence[Route]) -> str:
        """A longer subgraph that should be cut, or the rate that would do."""
        period = period_ns(self._workload, task)
        assert period is not None
        steps = self._steps
        self._steps = {n: s if n in self._routes or n == task.name else () for n, s in steps.items()}
        unblocked = any(self._try(task, r, period) for r in routes)
        self._steps = steps
        if unblocked:
            name, ns, most = self._blocker(task, routes)
            return (
                f"a subgraph of {name} ({ns / 1e6:.3g} ms) may block it too long: "
                f"cut it into parts of at most {most / 1e6:.3g} ms"
            )
        factor = 1.0
        while factor < 64 and not any(self._try(task, r, round(period * factor)) for r in routes):
            factor *= 1.1
        if factor >= 64 or task.relative_deadline_ns == 0:
            return "the guaranteed tasks before it leave it no room within its deadline at any rate: give it a longer deadline_ms"
        return f"the processors are taken by tasks before it: it fits at {1e9 / (period * factor):.3g} Hz"

    def _blocker(self, task: Task, routes: Sequence[Route]) -> tuple[str, int, int]:
        """(task, its longest subgraph, the most that could be borne) where only blocking is in the way."""
        used = {self._group[s.processor] for r in routes for s in r}
        worst, name = max(
            (self._bounds.of(n, s), n)
            for n, steps in self._steps.items() if n not in self._routes and n != task.name
            for s in steps if self._group[s.processor] in used
        )  # fmt: skip
        low, high = 0, worst
        while high - low > max(worst // 100, 1):
            middle = (low + high) // 2
            blocked = dict.fromkeys(used, middle)
            fits = any(len(analyse([*self._chains, self._chain(task, r)], blocked)) > len(self._chains) for r in routes)
            low, high = (middle, high) if fits else (low, middle)
        return name, worst, low


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


def routes_of(steps: Sequence[Step], segments: int, length) -> list[Route]:  # type: ignore[no-untyped-def]
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
