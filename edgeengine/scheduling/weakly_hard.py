"""Weakly-hard tasks: of any `of` consecutive jobs at least `met` must meet their deadlines; others may be skipped in overload.

(m, k)-firm deadlines of Hamdaoui & Ramanathan, IEEE Trans. Computers 44(12), 1995. Without a guarantee a job must be met when its
miss would leave too few among the last `of` (their distance-based rule). With one, jobs must be met by a fixed pattern that
spreads them evenly (Ramanathan, IEEE Trans. Parallel and Distributed Systems 10(6), 1999): any n consecutive jobs then hold at
most ceil(n met / of) of them, which is what response-time analysis reckons with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from edgeengine.events import AnyAction, Drop
from edgeengine.scheduling.job import Job, Task
from edgeengine.scheduling.view import View

Firm = tuple[int, int]  # (met, of)


def in_pattern(index: int, firm: Firm) -> bool:
    """Whether job `index` is one of the evenly spread ones: floor(i of / met) for some i."""
    met, of = firm
    nth = -(-index * met // of)
    return index == nth * of // met


def must_meet(recent: Sequence[bool], firm: Firm) -> bool:
    """Whether too few of the last `of` would be met if the next job were not; those before the first job count as met."""
    met, of = firm
    last = recent[max(len(recent) - of + 1, 0) :]
    return sum(last) + (of - 1 - len(last)) < met


def is_guaranteed(job: Job) -> bool:
    guarantee = job.task.guarantee
    return guarantee is not None and (guarantee.firm is None or in_pattern(job.index, guarantee.firm))


def needed(task: Task, indices: Iterable[int], begun: int) -> Iterator[bool]:
    """For jobs of a weakly-hard task that wait, in order: must it be met? Its `begun` jobs are taken to be met, and those that
    need not be to be missed.
    """
    firm = task.spec.firm
    assert firm is not None
    held = task.guarantee.firm if task.guarantee is not None else None
    recent = [*task.recent, *[True] * begun]
    for index in indices:
        must = in_pattern(index, held) if held is not None else task.guarantee is not None or must_meet(recent, firm)
        recent.append(must)
        yield must


def as_skips(view: View, drops: Iterable[AnyAction]) -> list[AnyAction]:
    """The same drops; those that a weakly-hard task allows say so."""
    firm = {t.name: t for t in view.tasks if t.spec.firm is not None}
    recent = {name: list(t.recent) for name, t in firm.items()}
    said: list[AnyAction] = []
    for drop in drops:
        task = firm.get(drop.task) if isinstance(drop, Drop) else None
        if task is not None and isinstance(drop, Drop) and task.spec.firm is not None:
            if not must_meet(recent[task.name], task.spec.firm):
                met, of = task.spec.firm
                drop = Drop(drop.task, drop.index, f"skipped: {met} of {of} are enough")
            recent[task.name].append(False)
        said.append(drop)
    return said
