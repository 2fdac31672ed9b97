"""A plan's timetable as policies keep it: guaranteed subgraphs begin at fixed times, others only in gaps that they fit into.

A time-triggered schedule (Kopetz, Real-Time Systems, 2nd ed. 2011, ch. 10). Nothing begins before its time, so that a run that
ends early moves no other: what fits at the bounds fits always.
"""

from __future__ import annotations

from bisect import bisect_left

from edgeengine.scheduling.job import Job, Move, ProcessorState
from edgeengine.spec import Timetable


class Slots:
    """`timetable` with the processors of a run; `groups`: the resources that exclude each of them, by index."""

    def __init__(self, timetable: Timetable, processors: list[ProcessorState], groups: list[int]):
        self._cycle_ns, self._asked_ns = timetable.cycle_ns, -1
        self._by_job: dict[tuple[str, int, str], tuple[int, str]] = {}
        self._jobs: dict[str, int] = {}  # of each task, in a cycle
        by_name = {p.name: p for p in processors}
        starts: dict[int, list[int]] = {}
        self._longest: dict[int, int] = {}  # by group: of what may run in gaps
        for slot in timetable.slots:
            self._by_job[slot.task, slot.job, slot.subgraph] = slot.start_ns, slot.processor
            self._jobs[slot.task] = max(self._jobs.get(slot.task, 0), slot.job + 1)
            starts.setdefault(groups[by_name[slot.processor].index], []).append(slot.start_ns)
        for name, ns in timetable.beside_ns.items():
            group = groups[by_name[name].index]
            self._longest[group] = max(self._longest.get(group, 0), ns)
        self._starts = {group: sorted(of_group) for group, of_group in starts.items()}

    def next(self, job: Job) -> tuple[int, Move | None]:
        """When the job's next subgraph begins, and where; None where that processor is lost."""
        nth = self._jobs[job.task.name]
        for move in job.task.moves[job.position]:
            slot = self._by_job.get((job.task.name, job.index % nth, move.subgraph))
            if slot is not None and slot[1] == move.processor.name:
                return job.index // nth * self._cycle_ns + slot[0], move if move.processor.available else None
        return 0, None

    def closed(self, now: int) -> int:
        """Resources on which nothing else may begin now, lest it still runs when the next slot begins."""
        mask = 0
        for group, longest in self._longest.items():
            starts = self._starts.get(group)
            if starts:
                at = now % self._cycle_ns
                place = bisect_left(starts, at)
                ahead = starts[place] - at if place < len(starts) else starts[0] + self._cycle_ns - at
                if longest > ahead:
                    mask |= group
        return mask

    def reopens_ns(self, now: int) -> int | None:
        """When the next slot of any group begins, or the next cycle; None if that was asked for before."""
        at = now % self._cycle_ns
        found = [starts[place] for starts in self._starts.values() if (place := bisect_left(starts, at + 1)) < len(starts)]
        next_ns = now - at + min(found, default=self._cycle_ns)
        if next_ns == self._asked_ns:
            return None
        self._asked_ns = next_ns
        return next_ns
