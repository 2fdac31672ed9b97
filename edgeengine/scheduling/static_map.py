"""Static maps, one processor per model: what dispatchers with a configured target use. Computed where none is given."""

from __future__ import annotations

from itertools import product

from edgeengine.scheduling.job import UNREACHABLE_NS, ProcessorState, Task
from edgeengine.scheduling.view import View

MOST_MAPS = 20_000  # beyond, tasks are placed one after the other


def fastest_map(view: View) -> dict[str, str]:
    """Every model on the processor that runs it whole in the least time."""
    return {task.name: min(_places(task, view.processors))[2] for task in view.tasks if _places(task, view.processors)}


def balanced_map(view: View) -> dict[str, str]:
    """The map with the fewest models that are late on their own, then the least peak utilisation, then the least total."""
    tasks = [t for t in view.tasks if _places(t, view.processors)]
    places = [_places(t, view.processors) for t in tasks]
    combinations = 1
    for options in places:
        combinations *= len(options)
    if combinations > MOST_MAPS:
        return _one_by_one(tasks, places)
    best = min(product(*places), key=lambda chosen: _badness(tasks, chosen))
    return {t.name: place[2] for t, place in zip(tasks, best, strict=True)}


Place = tuple[int, int, str]  # (ns, processor index, processor name)


def _places(task: Task, processors: list[ProcessorState]) -> list[Place]:
    found = [(task.stay_ns[p.index][0], p.index, p.name) for p in processors if p.available]
    return [place for place in found if place[0] < UNREACHABLE_NS]


def _badness(tasks: list[Task], chosen: tuple[Place, ...]) -> tuple[int, float, float]:
    load: dict[int, float] = {}
    late = 0
    for task, (ns, index, _) in zip(tasks, chosen, strict=True):
        late += task.deadline_ns is not None and ns > task.deadline_ns
        load[index] = load.get(index, 0.0) + utilisation(task, ns)
    return late, max(load.values(), default=0.0), sum(load.values())


def _one_by_one(tasks: list[Task], places: list[list[Place]]) -> dict[str, str]:
    """Greedy, the heaviest first."""
    order = sorted(range(len(tasks)), key=lambda i: -utilisation(tasks[i], min(places[i])[0]))
    chosen: list[tuple[Task, Place]] = []
    for i in order:
        best = min(places[i], key=lambda p: _badness([t for t, _ in chosen] + [tasks[i]], (*(c for _, c in chosen), p)))
        chosen.append((tasks[i], best))
    return {t.name: place[2] for t, place in chosen}


def utilisation(task: Task, ns: int) -> float:
    """Share of a processor that jobs of `ns` take; 0 for a task whose rate is not known."""
    probability, source = 1.0, task
    while source.period_ns is None and source.parent is not None:
        probability *= source.probability
        source = source.parent
    if source.spec.arrivals is not None and source.spec.arrivals.poisson is not None:
        return probability * ns * source.spec.arrivals.poisson / 1e9
    return probability * ns / source.period_ns if source.period_ns else 0.0
