"""What the price policy goes by: the plan's guidance where there is some, else what follows from the workload alone."""

from __future__ import annotations

from collections.abc import Sequence

from edgeengine.scheduling.job import TRAIN_RANK, UNREACHABLE_NS, Move, ProcessorState, Task
from edgeengine.scheduling.routes import Piece, Route, Routes
from edgeengine.scheduling.static_map import balanced_map, utilisation
from edgeengine.scheduling.view import View
from edgeengine.spec import Guidance

LEAST_PRICE = 1e-3  # the dual prices are degenerate: often 0
MARGIN_SHARE = 0.019  # of the shortest deadline: 0.3 ms of 16
MARGIN_SLACK = 0.9  # never more than this share of a task's own slack
HORIZON_DEADLINES = (2, 4)  # the horizon is twice the median deadline, within this many of the shortest
TAIL = (1.0, 0.4, 0.0)  # by class: p99 for high, the median for background


def usual_horizon_ns(deadlines_ns: Sequence[int]) -> int:
    """How far ahead to plan for tasks of these relative deadlines."""
    if not deadlines_ns:
        return 0
    ordered = sorted(deadlines_ns)
    low, high = (factor * ordered[0] for factor in HORIZON_DEADLINES)
    return min(max(2 * ordered[len(ordered) // 2], low), high)


def usual_margin_ns(deadlines_ns: Sequence[int]) -> int:
    """What to keep before deadlines, for tasks of these relative deadlines."""
    return round(MARGIN_SHARE * min(deadlines_ns, default=0))


class Guide:
    """Settings resolved for one run. `rank`: tasks in order of class, then of what the guidance keeps first. By task index:
    `shortest_ns` of a whole job, `margin_ns` to keep before its deadline, `reserved_ns` for its children.
    """

    def __init__(self, view: View):
        given = view.guidance or Guidance()
        self._tail = given.tail or TAIL
        self._view = view
        deadlines = [t.deadline_ns for t in view.tasks if t.deadline_ns is not None and not t.train]
        self.horizon_ns = given.horizon_ns or usual_horizon_ns(deadlines)
        self._margin_ns = given.margin_ns if given.margin_ns is not None else usual_margin_ns(deadlines)
        self.grace_ns = self._margin_ns  # for a release that should have come
        self.tolerance_ns = self._margin_ns // 4  # of an end that is not when it was expected
        self.earliest, self._reserve = given.earliest, given.reserve
        self._prices = [max(given.prices.get(p.name, 1.0), LEAST_PRICE) for p in view.processors]
        places = balanced_map(view) if given.order == "balanced" else {}
        self._routes = [
            Routes(lambda m, r=t.rank: self.length_ns(r, m), _cost(given.order, self._prices, places.get(t.name)))  # type: ignore[misc]
            for t in view.tasks
        ]
        self.rank = self._ranked(view.tasks, given.rank)
        self._estimates = -1
        self.refresh()
        for task in view.tasks:
            for position in range(task.segments):
                self.routes(task, position)

    def length_ns(self, rank: int, move: Move) -> int:
        tail = self._tail[min(rank, 2)]
        return round(move.p50_ns + tail * (move.p99_ns - move.p50_ns)) if tail else move.p50_ns

    def refresh(self) -> None:
        """Work out anew what hangs on latencies, where these changed."""
        estimates = sum(t.estimates for t in self._view.tasks)
        if estimates == self._estimates:
            return
        self._estimates = estimates
        tasks = self._view.tasks
        self.shortest_ns = [self._routes[t.index].shortest_ns(t) for t in tasks]
        self.margin_ns = [self._margin_of(t) for t in tasks]
        self.reserved_ns = [self._reserved_for(t) for t in tasks]

    def _margin_of(self, task: Task) -> int:
        """What is kept before a deadline of this task; little where the task itself leaves little."""
        slack = (task.deadline_ns or UNREACHABLE_NS) - self.shortest_ns[task.index]
        return min(self._margin_ns, max(0, round(MARGIN_SLACK * slack)))

    def _reserved_for(self, task: Task) -> int:
        """What children that are as likely as not need after a job of this task."""
        if not self._reserve:
            return 0
        return max((self.shortest_ns[c.index] for c in task.children if c.probability >= 0.5 and not c.train), default=0)

    def routes(self, task: Task, position: int) -> list[Route]:
        return self._routes[task.index].of(task, position)

    def piece(self, task: Task, processor: ProcessorState, start: int, stop: int) -> Piece | None:
        return self._routes[task.index].piece(task, processor, start, stop)

    def _ranked(self, tasks: list[Task], given: tuple[str, ...]) -> list[Task]:
        place = {name: i for i, name in enumerate(given)}
        by_load = sorted((t for t in tasks if not t.train), key=self._priced_utilisation)
        guaranteed = sorted(
            (t for t in tasks if t.guarantee is not None), key=lambda t: t.guarantee.priority if t.guarantee else 0
        )
        ordered = guaranteed + sorted(by_load, key=lambda t: (t.rank, place.get(t.name, len(place))))
        ranked: list[Task] = []
        for task in ordered:
            ancestors = [task]
            while ancestors[-1].parent is not None:
                ancestors.append(ancestors[-1].parent)
            ranked += [a for a in reversed(ancestors) if a not in ranked and a.rank < TRAIN_RANK]
        return ranked

    def _priced_utilisation(self, task: Task) -> float:
        costs = [utilisation(task, ns[0]) * price for ns, price in zip(task.stay_ns, self._prices) if ns[0] < UNREACHABLE_NS]
        return min(costs, default=utilisation(task, task.best_ns[0]))


def _cost(order: str, prices: list[float], place: str | None):  # type: ignore[no-untyped-def]
    if order == "price":
        return lambda processor, ns: prices[processor.index] * ns
    return lambda processor, ns: (processor.name != place, ns) if place is not None else (False, ns)
