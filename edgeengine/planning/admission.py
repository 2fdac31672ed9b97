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

import msgspec

from edgeengine.planning.bounds import in_order, period_ns
from edgeengine.planning.place_search import Search
from edgeengine.planning.placing import BEST_EFFORT, GUARANTEED, REFUSED
from edgeengine.spec import Guarantee, Plan, Step, TaskPlan
from edgeengine.workload import Task, Workload

MARGIN = 1.2  # on the p99: a sample's p99 is not the worst that comes


def admit(workload: Workload, plan: Plan, *, margin: float = MARGIN, memory_bytes: int | None = None) -> Plan:
    """The plan with a verdict and its reason for every task. `memory_bytes`: what sessions may take, None = not checked."""
    return _Admission(workload, plan, margin, memory_bytes).run()


class _Admission(Search):
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
