"""Tasks with a guarantee, by priority and each on its route: whether they pass, and what would make one fit that does not.

Tested by response-time analysis (see response_time) with every subgraph at its p99 times a margin, plus the machine's overheads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeengine.planning.bounds import Bounds, Route, groups, period_ns, routes_of
from edgeengine.planning.response_time import Chain, Stage, analyse, progress
from edgeengine.spec import Plan, Step, Timetable
from edgeengine.workload import Task, Workload

GUARANTEED, BEST_EFFORT, REFUSED = "guaranteed", "best effort", "refused"
Steps = Mapping[str, tuple[Step, ...]]


class Placing:
    """The state of an admission, and the questions asked of it."""

    def __init__(self, workload: Workload, plan: Plan, margin: float, memory_bytes: int | None):
        self._workload, self._margin, self._memory = workload, margin, memory_bytes
        self._bounds = Bounds(plan, margin)
        self._plan = plan
        self._group = groups(plan)
        self._steps = {t.task: t.steps for t in plan.tasks}  # what tasks without a guarantee may run
        self._order: list[Task] = []  # with a guarantee, by priority
        self._routes: dict[str, Route] = {}
        self._firm: dict[str, tuple[int, int]] = {}  # of weakly-hard tasks guaranteed no more than they must meet
        self._verdicts: dict[str, tuple[str, str]] = {}
        self._timed: tuple[Timetable, dict[str, int]] | None = None  # where priorities were not enough, with ends by task

    # ---- who passes ----

    def _progress(
        self, order: Sequence[Task] | None = None, routes: Mapping[str, Route] | None = None, steps: Steps | None = None
    ) -> float:
        """How many tasks pass, counted from the highest priority, and how near the next comes."""
        order = self._order if order is None else order
        routes = self._routes if routes is None else routes
        chains = [self._chain(t, routes[t.name]) for t in order]
        return progress(chains, self._others(self._steps if steps is None else steps, routes))

    def _analyse(self, order: Sequence[Task], routes: Mapping[str, Route], steps: Steps) -> dict[str, list[int]]:
        """Ends of the stages of those that pass; tasks outside the order block with every step they may run."""
        return analyse([self._chain(t, routes[t.name]) for t in order], self._others(steps, routes))

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
        return Chain(
            task.name,
            own_period,
            task.relative_deadline_ns,
            tuple(stages),
            self._bounds.jitter_ns,
            task.after,
            self._firm.get(task.name, (1, 1)),
        )

    def _others(self, steps: Steps, routes: Mapping[str, Route]) -> dict[int, int]:
        """By group, the longest subgraph of jobs without a guarantee: of tasks without a route, or that may be skipped."""
        longest: dict[int, int] = {}
        for name, allowed in steps.items():
            if name not in routes or name in self._firm:
                for step in routes.get(name, allowed):
                    group = self._group[step.processor]
                    longest[group] = max(longest.get(group, 0), self._bounds.of(name, step))
        return longest

    def _routes_of(self, task: Task) -> list[Route]:
        own = self._plan.task(task.name)
        return routes_of(own.steps, own.segments, lambda s: self._bounds.of(task.name, s))

    def _length(self, task: Task, route: Route) -> int:
        return sum(self._bounds.of(task.name, s) for s in route)

    def _loads(self, routes: Mapping[str, Route]) -> list[float]:
        """Of the groups, the highest first."""
        load = dict.fromkeys(self._group.values(), 0.0)
        for task in self._order:
            for step in routes[task.name]:
                load[self._group[step.processor]] += self._bounds.of(task.name, step) / (period_ns(self._workload, task) or 1)
        return sorted((round(value, 9) for value in load.values()), reverse=True)

    # ---- who goes without ----

    def _give_up(self, task: Task) -> None:
        self._leave(task, self._what_would_fit(task))

    def _leave(self, task: Task, reason: str) -> None:
        """Out of the order, and what waits for it too: a high task, or one without a way left, is refused."""
        gone = {t.name for t in self._with_descendants(task)}
        for other in self._order:
            if other.name in gone:
                why = reason if other is task else f"it waits for {other.after}, which has no guarantee"
                refused = not self._steps[other.name] or (other is task and task.criticality == "high")
                self._verdicts[other.name] = (REFUSED if refused else BEST_EFFORT, why)
        self._order = [t for t in self._order if t.name not in gone]
        self._routes = {n: r for n, r in self._routes.items() if n not in gone}
        self._firm = {n: firm for n, firm in self._firm.items() if n not in gone}

    def _with_descendants(self, task: Task) -> list[Task]:
        """The task and those in the order that wait for it."""
        found = [task]
        for other in self._order:  # children come after their parents
            if other.after in {t.name for t in found}:
                found.append(other)
        return found

    # ---- what would make it fit ----

    def _what_would_fit(self, task: Task) -> str:
        """A subgraph of another task that should be cut, or the rate that would do."""
        period = period_ns(self._workload, task)
        assert period is not None
        before = self._order[: self._order.index(task)]
        if self._fits(task, before, period, {}):
            name, ns, most = self._blocker(task, before, period)
            return (
                f"a subgraph of {name} ({ns / 1e6:.3g} ms) may block it too long: "
                f"cut it into parts of at most {most / 1e6:.3g} ms"
            )
        factor = 1.0
        while factor < 64 and not self._fits(task, before, round(period * factor), self._others(self._steps, self._routes)):
            factor *= 1.1
        if factor >= 64:
            return "tasks before it leave it no room within its deadline at any rate: give it a longer deadline_ms"
        return f"the processors are taken by tasks before it: it fits at {1e9 / (period * factor):.3g} Hz"

    def _fits(self, task: Task, before: Sequence[Task], period: int, blocking: dict[int, int]) -> bool:
        chains = [self._chain(t, self._routes[t.name]) for t in before]
        return any(len(analyse([*chains, self._chain(task, r, period)], blocking)) > len(before) for r in self._routes_of(task))

    def _blocker(self, task: Task, before: Sequence[Task], period: int) -> tuple[str, int, int]:
        """(task, its longest subgraph, the most that could be borne) where only blocking is in the way."""
        used = {self._group[s.processor] for r in self._routes_of(task) for s in r}
        ahead = {t.name for t in (*before, task)}
        behind = {n: self._routes.get(n, s) for n, s in self._steps.items() if n not in ahead}
        worst, name = max(
            ((self._bounds.of(n, s), n) for n, steps in behind.items() for s in steps if self._group[s.processor] in used),
            default=(0, "another task"),
        )
        low, high = 0, worst
        while high - low > max(worst // 100, 1):
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(task, before, period, dict.fromkeys(used, middle)) else (low, middle)
        return name, worst, low
