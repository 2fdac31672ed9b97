"""Guaranteed jobs go first: what the verdict of admission rests on, whatever policy runs the rest.

A guaranteed job's next subgraph starts on the processor of its route as soon as that is free, by fixed priority. While one waits,
nothing of lower priority begins on any processor of the same group (those that exclude each other, directly or through a third).
Where the plan has a timetable, subgraphs begin at its times instead, and others only in gaps.
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Start, Wake
from edgeengine.scheduling.job import Job, Move
from edgeengine.scheduling.timetable import Slots
from edgeengine.scheduling.view import View
from edgeengine.scheduling.weakly_hard import is_guaranteed


def start_guaranteed(view: View, now: int) -> tuple[list[AnyAction], int]:
    """The starts, and the mask of what the other jobs may not use now."""
    if view.slots is not None:
        return _by_timetable(view, view.slots, now)
    busy = view.busy_mask
    ready = [j for j in view.ready if is_guaranteed(j)]
    if not ready:
        return [], busy
    actions: list[AnyAction] = []
    for job in sorted(ready, key=_priority):
        move = next_move(job)
        if move is None:
            continue
        if view.can_start(move.processor, now, busy):
            busy |= move.processor.mask
            actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
        else:
            busy |= view.group_mask(move.processor)
    return actions, busy


def _by_timetable(view: View, slots: Slots, now: int) -> tuple[list[AnyAction], int]:
    busy = view.busy_mask
    actions: list[AnyAction] = []
    for job in view.ready:
        if job.task.guarantee is None:
            continue
        at_ns, move = slots.next(job)
        if move is None:  # its processor is lost, and the guarantee void: the fastest way left, at once
            move = next((m for m in job.task.fastest[job.position] if view.can_start(m.processor, now, busy)), None)
        if move is not None and at_ns <= now:
            if view.can_start(move.processor, now, busy):
                actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
            busy |= move.processor.mask
    next_ns = slots.reopens_ns(now)
    if next_ns is not None:
        actions.append(Wake(next_ns))
    return actions, busy | slots.closed(now)


def next_move(job: Job) -> Move | None:
    """Along the task's guaranteed route; the fastest where that processor is lost, and the guarantee void."""
    assert job.task.guarantee is not None
    route = set(job.task.guarantee.route)
    moves = [m for m in job.task.moves[job.position] if m.processor.available]
    own = [m for m in moves if (m.subgraph, m.processor.name) in route]
    return min(own or moves, key=lambda m: m.p50_ns + job.task.best_ns[m.stop], default=None)


def _priority(job: Job) -> tuple[int, int]:
    assert job.task.guarantee is not None
    return (job.task.guarantee.priority, job.index)
