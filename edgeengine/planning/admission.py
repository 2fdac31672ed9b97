"""Admission: which tasks can be guaranteed their deadlines before anything runs, and what would make the others fit.

All tasks that could have a guarantee start by criticality and then deadline (deadline monotonic, children after their parents),
on their shortest routes, or on those that balance the load. They are tested by response-time analysis (see response_time) with
every subgraph at its p99 times a margin, plus the machine's overheads. Where one would be late, the single change that brings
most is made: another route for one of them, another place in the order within its class, or, where a subgraph of a task without
guarantee blocks, taking that step out of the other's plan if another way is left. If nothing helps, that task goes without; but
one of high criticality first takes the processors from the less critical tasks after it, which may run elsewhere or not at all.
The verdict is for policies that start guaranteed jobs first (see scheduling.guaranteed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from edgeengine.planning.blocking import rank
from edgeengine.planning.bounds import Bounds, Route, groups, in_order, period_ns, routes_of
from edgeengine.planning.response_time import Chain, Stage, analyse, progress
from edgeengine.planning.timetable import timetable
from edgeengine.spec import Guarantee, Plan, Step, TaskPlan, Timetable
from edgeengine.workload import Task, Workload

MARGIN = 1.2  # on the p99: a sample's p99 is not the worst that comes
LEAST_GAIN = 1e-3  # of a change in the search, in tasks: every step of it gains that much, so it ends
GUARANTEED, BEST_EFFORT, REFUSED = "guaranteed", "best effort", "refused"

Steps = Mapping[str, tuple[Step, ...]]
State = tuple[list[Task], dict[str, Route], dict[str, tuple[Step, ...]], dict[str, tuple[int, int]]]


def admit(workload: Workload, plan: Plan, *, margin: float = MARGIN, memory_bytes: int | None = None) -> Plan:
    """The plan with a verdict and its reason for every task. `memory_bytes`: what sessions may take, None = not checked."""
    return _Admission(workload, plan, margin, memory_bytes).run()


class _Admission:
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

    def run(self) -> Plan:
        left = self._memory
        for task in in_order(self._workload):
            needs = self._plan.task(task.name).resident_bytes
            if left is not None and needs is not None and needs > left:
                reason = f"its sessions take {needs / 1e6:.3g} MB, {left / 1e6:.3g} MB are left"
                self._verdicts[task.name] = (REFUSED, reason)
                self._steps[task.name] = ()
                continue
            left = left - needs if left is not None and needs is not None else left
            self._consider(task)
        self._settle()
        if self._timed is None:
            ends = {name: stages[-1] for name, stages in self._analyse(self._order, self._routes, self._steps).items()}
            table = None
        else:
            table, ends = self._timed
        tasks = tuple(self._verdict(t, *self._verdicts.get(t.task, (GUARANTEED, "")), ends.get(t.task)) for t in self._plan.tasks)
        return msgspec.structs.replace(self._plan, tasks=tasks, timetable=table)

    def _verdict(self, plan: TaskPlan, verdict: str, reason: str, response_ns: int | None) -> TaskPlan:
        guarantee, steps = None, self._steps[plan.task]
        if response_ns is not None:
            priority = next(i for i, t in enumerate(self._order) if t.name == plan.task)
            steps = self._allowed(plan.task)
            route = tuple((s.subgraph, s.processor) for s in steps)
            guarantee = Guarantee(priority, route, response_ns, self._margin, self._firm.get(plan.task))
            deadline = self._order[priority].relative_deadline_ns or 0
            reason = (
                f"ends within {response_ns / 1e6:.3g} of {deadline / 1e6:.3g} ms while no subgraph takes more than "
                f"{self._margin:g} x its p99"
            )
            if self._timed is not None:
                reason = f"by a timetable of {self._timed[0].cycle_ns / 1e6:g} ms: {reason}"
            if guarantee.firm is not None:
                reason = f"{guarantee.firm[0]} of any {guarantee.firm[1]} jobs: {reason}"
        return msgspec.structs.replace(
            plan,
            steps=steps,
            verdict=verdict,
            reason=reason,
            guarantee=guarantee,
        )

    def _allowed(self, name: str) -> tuple[Step, ...]:
        """The steps of a guaranteed task: its route, or what its timetable uses."""
        if self._timed is None:
            return self._routes[name]
        used = {(s.subgraph, s.processor) for s in self._timed[0].slots if s.task == name}
        return tuple(s for s in self._steps[name] if (s.subgraph, s.processor) in used)

    def _consider(self, task: Task) -> None:
        """Into the order on its shortest route, or a verdict at once."""
        why_not = self._not_eligible(task)
        if why_not:
            self._verdicts[task.name] = (BEST_EFFORT, why_not)
            return
        routes = self._routes_of(task)
        deadline = task.relative_deadline_ns
        assert deadline is not None
        alone = min((self._length(task, r) for r in routes), default=None)
        if alone is None:
            self._verdicts[task.name] = (REFUSED, "no processor can run it")
        elif alone > deadline:
            self._verdicts[task.name] = (
                REFUSED,
                f"takes {alone / 1e6:.3g} ms alone ({self._margin:g} x p99), its deadline is {deadline / 1e6:.3g} ms: "
                f"it fits with deadline_ms = {alone / 1e6:.3g} at least",
            )
        else:
            self._order.append(task)
            self._routes[task.name] = routes[0]

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

    # ---- the search ----

    def _settle(self) -> None:
        """Change routes, order and other tasks' steps until all in the order pass; who cannot leaves it.

        One change at a time climbs to a local optimum, so that the search begins at several places.
        """
        found: list[tuple[float, State]] = []
        order, steps = self._order, self._steps
        for routes in (self._routes, self._balanced()):
            self._order, self._routes, self._steps, self._firm = order, routes, steps, {}
            reached = self._climb()
            found.append((reached, (self._order, self._routes, self._steps, self._firm)))
            if reached >= len(order):
                return
        self._order, self._routes, self._steps, self._firm = order, dict(self._routes), steps, {}
        self._timed = timetable(order, self._plan, steps, self._bounds)
        if self._timed is not None:
            return
        _, (self._order, self._routes, self._steps, self._firm) = max(found, key=lambda f: f[0])
        while (reached := self._climb()) < len(self._order):
            if not self._oust(reached):
                self._give_up(self._order[int(reached)])

    def _climb(self) -> float:
        """How far it comes by single changes."""
        changes = (self._reroute, self._reorder, self._clear, self._relax)
        while (reached := self._progress()) < len(self._order):
            if not any(change(reached) for change in changes):
                break
        return reached

    def _balanced(self) -> dict[str, Route]:
        """Routes with the least peak load of the groups, as far as changing one at a time goes."""
        routes = dict(self._routes)
        least = self._loads(routes)
        improved = True
        while improved:
            improved = False
            for task in self._order:
                for route in self._routes_of(task):
                    loads = self._loads(routes | {task.name: route})
                    if loads < least:
                        least, improved = loads, True
                        routes[task.name] = route
        return routes

    def _loads(self, routes: Mapping[str, Route]) -> list[float]:
        """Of the groups, the highest first."""
        load = dict.fromkeys(self._group.values(), 0.0)
        for task in self._order:
            for step in routes[task.name]:
                load[self._group[step.processor]] += self._bounds.of(task.name, step) / (period_ns(self._workload, task) or 1)
        return sorted((round(value, 9) for value in load.values()), reverse=True)

    def _progress(
        self, order: Sequence[Task] | None = None, routes: Mapping[str, Route] | None = None, steps: Steps | None = None
    ) -> float:
        """How many tasks pass, counted from the highest priority, and how near the next comes."""
        order = self._order if order is None else order
        routes = self._routes if routes is None else routes
        chains = [self._chain(t, routes[t.name]) for t in order]
        return progress(chains, self._others(self._steps if steps is None else steps, routes))

    def _reroute(self, reached: float) -> bool:
        best = reached + LEAST_GAIN
        change: tuple[str, Route] | None = None
        for task in self._order:
            for route in self._routes_of(task):
                count = self._progress(routes=self._routes | {task.name: route})
                if count > best:
                    best, change = count, (task.name, route)
        if change is not None:
            self._routes[change[0]] = change[1]
        return change is not None

    def _reorder(self, reached: float) -> bool:
        """The task that is late goes further forward, not before a parent nor a more critical one; on any of its routes."""
        passing = int(reached)
        late = self._order[passing]
        for place in range(passing - 1, -1, -1):
            if rank(self._order[place]) < rank(late) or self._order[place].name == late.after:
                return False
            order = [*self._order[:place], late, *self._order[place:passing], *self._order[passing + 1 :]]
            for route in self._routes_of(late):
                routes = self._routes | {late.name: route}
                if self._progress(order, routes) > reached + LEAST_GAIN:
                    self._order, self._routes = order, routes
                    return True
        return False

    def _clear(self, reached: float) -> bool:
        """Take the longest steps from tasks without a guarantee, where these have another way."""
        late = self._order[int(reached)]
        for route in self._routes_of(late):
            routes = self._routes | {late.name: route}
            used = {self._group[s.processor] for s in route}
            others = {n: s for n, s in self._steps.items() if n not in self._routes}
            on_these = ((n, s) for n, steps in others.items() for s in steps if self._group[s.processor] in used)
            for most in [*sorted({self._bounds.of(n, s) for n, s in on_these}, reverse=True)[1:], 0]:
                steps = dict(self._steps) | {n: self._shorter(n, s, used, most) for n, s in others.items()}
                if self._progress(routes=routes, steps=steps) > reached + LEAST_GAIN:
                    self._routes, self._steps = routes, steps
                    return True
        return False

    def _shorter(self, name: str, steps: tuple[Step, ...], used: set[int], most_ns: int) -> tuple[Step, ...]:
        kept = tuple(s for s in steps if self._group[s.processor] not in used or self._bounds.of(name, s) <= most_ns)
        return kept if routes_of(kept, self._plan.task(name).segments, lambda s: s.latency.p50_ns) else steps

    def _relax(self, reached: float) -> bool:
        """A weakly-hard task is guaranteed only as many jobs as it must meet; its other jobs block, as any without guarantee."""
        best, chosen = reached + LEAST_GAIN, ""
        for task in self._order:
            alone = task.after is None and not task.carry and all(t.after != task.name for t in self._workload.tasks)
            if task.firm is not None and task.firm[0] < task.firm[1] and alone and task.name not in self._firm:
                self._firm[task.name] = task.firm
                gain = self._progress()
                del self._firm[task.name]
                if gain > best:
                    best, chosen = gain, task.name
        if chosen:
            firm = self._workload.task(chosen).firm
            assert firm is not None
            self._firm[chosen] = firm
        return bool(chosen)

    def _oust(self, reached: float) -> bool:
        """A high task that is late takes its processors from less critical ones behind it, the last first, if that is enough."""
        place = int(reached)
        late = self._order[place]
        if late.criticality != "high":
            return False
        for route in self._routes_of(late):
            used = {self._group[s.processor] for s in route}
            routes, steps = self._routes | {late.name: route}, dict(self._steps)
            ousted: dict[str, str] = {}
            staying = list(self._order)
            for task in reversed(self._order[place + 1 :]):
                if task in staying and rank(task) > rank(late) and used & {self._group[s.processor] for s in routes[task.name]}:
                    ousted[task.name] = self._why_ousted(task, late)
                    leaving = self._with_descendants(task)
                    steps |= {t.name: self._elsewhere(t.name, used) for t in leaving}
                    staying = [t for t in staying if t not in leaving]
                    left = {t.name: routes[t.name] for t in staying}
                    if self._progress(staying, left, steps) >= place + 1:
                        self._routes, self._steps = routes, steps
                        for name, reason in ousted.items():
                            self._leave(self._workload.task(name), reason)
                        return True
        return False

    def _with_descendants(self, task: Task) -> list[Task]:
        """The task and those in the order that wait for it."""
        found = [task]
        for other in self._order:  # children come after their parents
            if other.after in {t.name for t in found}:
                found.append(other)
        return found

    def _elsewhere(self, name: str, used: set[int]) -> tuple[Step, ...]:
        """The task's steps outside these groups, if there is a way; else none."""
        kept = tuple(s for s in self._steps[name] if self._group[s.processor] not in used)
        return kept if routes_of(kept, self._plan.task(name).segments, lambda s: s.latency.p50_ns) else ()

    def _why_ousted(self, task: Task, late: Task) -> str:
        before, period = self._order[: self._order.index(late)], period_ns(self._workload, late)
        assert period is not None
        worst = max(self._bounds.of(task.name, s) for s in self._routes[task.name])
        _, _, most = self._blocker(late, before, period)
        return (
            f"a subgraph of it ({worst / 1e6:.3g} ms) may block {late.name}, which is high, too long: "
            f"cut it into parts of at most {most / 1e6:.3g} ms"
        )

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

    # ---- the analysis ----

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
