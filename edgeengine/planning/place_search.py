"""The search for places: one change at a time, the one that brings most, until all tasks in the order pass.

The changes: another route for a task, another place in the order within its class, fewer steps for tasks without a guarantee that
block, fewer guaranteed jobs of a weakly-hard task. Where none helps, a high task takes processors from less critical ones.
"""

from __future__ import annotations

from edgeengine.planning.blocking import rank
from edgeengine.planning.bounds import Route, period_ns, routes_of
from edgeengine.planning.placing import Placing
from edgeengine.planning.timetable import timetable
from edgeengine.spec import Step
from edgeengine.workload import Task

LEAST_GAIN = 1e-3  # of a change, in tasks: every step of the search gains that much, so it ends

State = tuple[list[Task], dict[str, Route], dict[str, tuple[Step, ...]], dict[str, tuple[int, int]]]


class Search(Placing):
    """Changes its routes, order and other tasks' steps."""

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
