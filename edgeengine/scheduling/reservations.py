"""Reservations on processors, and whether they all end in time: what the price policy's plan is made of.

A timeline holds the reservations of one processor, or of several that hold resources in common. Where one job runs at a time,
whole, they are an explicit sequence, and leaving the processor idle before an urgent one comes free. Where jobs give way between
subgraphs, they follow EDF with preemption at those borders; so they do, at every border together, where only some of the
processors exclude each other ("both cores" and either core). Times are nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from edgeengine.scheduling.job import ENDED, READY, RUNNING, UNREACHABLE_NS, Job, ProcessorState, Task

FAR_NS = UNREACHABLE_NS
BY_URGENCY = attrgetter("urgency")
JOINT_WORK = 4  # what an evaluation of a joint timeline costs beside one in which one runs at a time


class Reservation:
    """`length_ns` on `processor` for the job (None: a release still to come), from position `start` to `stop`.

    `deadline_ns` orders it, `due_ns` is when it must have ended: earlier once another reservation relies on its `finish_ns`,
    never for a job that has begun and can no longer be in time. `grain_ns`: its longest subgraph.
    """

    __slots__ = (
        "deadline_ns", "due_ns", "finish_ns", "grain_ns", "index", "job", "length_ns", "processor", "release_ns", "start",
        "stop", "task", "urgency",
    )  # fmt: skip

    def __init__(
        self, task: Task, index: int, job: Job | None, processor: ProcessorState, start: int, stop: int, length_ns: int,
        grain_ns: int, release_ns: int, deadline_ns: int,
    ):  # fmt: skip
        self.task, self.index, self.job, self.processor = task, index, job, processor
        self.start, self.stop, self.length_ns, self.grain_ns = start, stop, length_ns, grain_ns
        self.release_ns, self.deadline_ns, self.due_ns, self.finish_ns = release_ns, deadline_ns, deadline_ns, FAR_NS
        self.urgency = (deadline_ns, release_ns)

    @property
    def can_start(self) -> bool:
        return self.job is not None and self.job.state == READY and self.start <= self.job.position < self.stop

    @property
    def is_over(self) -> bool:
        """Its job ended, or is past it, or at it now."""
        job = self.job
        return job is not None and (job.state == ENDED or job.position >= self.stop or job.state == RUNNING)


class Timeline:
    """Reservations in order. `free_ns`: when the first could begin; with `joint` (not all its processors exclude each other)
    also `busy`, what runs: (until, mask). `work` counts what planning costs, in reservations looked at.
    """

    __slots__ = ("busy", "divisible", "entries", "free_ns", "joint", "work")

    def __init__(self, divisible: bool, joint: bool):
        self.divisible, self.joint = divisible or joint, joint
        self.entries: list[Reservation] = []
        self.free_ns = 0
        self.busy: list[tuple[int, int]] = []
        self.work = 0

    def clear(self, now: int) -> None:
        self.entries, self.busy, self.free_ns, self.work = [], [], now, 0

    def occupy(self, processor: ProcessorState, until_ns: int) -> None:
        """Something runs there."""
        if self.joint:
            self.busy.append((until_ns, processor.mask))
        else:
            self.free_ns = max(self.free_ns, until_ns)

    def insert(self, new: Reservation, after: Reservation | None = None) -> bool:
        """Put it where all end in time, `after` before it; False, and nothing changed, if there is no such place."""
        if max(new.release_ns, self.free_ns) + new.length_ns > new.due_ns:
            return False
        at = bisect_right(self.entries, new.urgency, key=BY_URGENCY)
        if self.divisible:
            return self._try(at, new)
        first = self.entries.index(after) + 1 if after is not None else 0
        at = max(at, first)
        places = [at, *range(at - 1, first - 1, -1), *range(at + 1, len(self.entries) + 1)]
        return any(self._try(place, new) for place in places)

    def force(self, new: Reservation) -> None:
        """Put it last of all, in time or not: a job that has begun."""
        new.deadline_ns = new.due_ns = FAR_NS
        new.urgency = (FAR_NS, new.release_ns)
        self.entries.append(new)
        self.refresh()

    def remove(self, old: Reservation) -> None:
        self.entries.remove(old)
        self.refresh()

    def refresh(self) -> None:
        """Expected finishes anew, after a change that can make none late."""
        self._commit(self._finishes(self.entries))

    def startable(self) -> Iterator[Reservation]:
        """Reservations whose next subgraph may start now, the first first; none while the processor is to stay idle."""
        if self.divisible:
            yield from (e for e in self.entries if e.can_start)
            return
        while self.entries and self.entries[0].is_over:
            del self.entries[0]
        if self.entries and self.entries[0].can_start:
            yield self.entries[0]

    def _try(self, at: int, new: Reservation) -> bool:
        entries = self.entries
        entries.insert(at, new)
        finishes = self._finishes(entries)
        if finishes is None:
            del entries[at]
            return False
        self._commit(finishes)
        return True

    def _commit(self, finishes: list[int] | None) -> None:
        for entry, finish in zip(self.entries, finishes or ()):
            entry.finish_ns = finish

    def _finishes(self, entries: list[Reservation]) -> list[int] | None:
        """When each would end; None if one would be late."""
        self.work += (JOINT_WORK if self.joint else 1) * len(entries)
        if self.joint:
            return _jointly(entries, self.busy, self.free_ns)
        return _edf(entries, self.free_ns) if self.divisible else _in_turn(entries, self.free_ns)


def _in_turn(entries: list[Reservation], now: int) -> list[int] | None:
    finishes = []
    for e in entries:
        now = (e.release_ns if e.release_ns > now else now) + e.length_ns
        if now > e.due_ns:
            return None
        finishes.append(now)
    return finishes


def _edf(entries: list[Reservation], now: int) -> list[int] | None:
    """Entries are sorted by urgency. A running one gives way to a more urgent release at its next border."""
    finishes = [0] * len(entries)
    pending = list(range(len(entries)))
    left = [e.length_ns for e in entries]
    while pending:
        nearest = FAR_NS  # release of those more urgent than the first that could run
        for place, i in enumerate(pending):  # noqa: B007
            release = entries[i].release_ns
            if release <= now:
                break
            if release < nearest:
                nearest = release
        else:
            now = nearest
            continue
        entry = entries[i]
        finish = now + left[i]
        if nearest < finish:
            run = -((now - nearest) // entry.grain_ns) * entry.grain_ns  # rounded up to a border
            if run < left[i]:
                left[i] -= run
                now += run
                continue
        now = finish
        if now > entry.due_ns:
            return None
        finishes[i] = now
        del pending[place]
    return finishes


def _jointly(entries: list[Reservation], busy: list[tuple[int, int]], now: int) -> list[int] | None:
    """As `_edf` on processors of which some exclude each other. What waits for a resource keeps those of less urgency off it."""
    finishes = [0] * len(entries)
    pending = list(range(len(entries)))
    left = [e.length_ns for e in entries]
    runs: list[tuple[int, int, int]] = [(until, mask, -1) for until, mask in busy]  # (until, mask, entry)
    while pending:
        runs = [r for r in runs if r[0] > now]
        held = 0
        for _, mask, _ in runs:
            held |= mask
        going = {i for _, _, i in runs}
        for i in list(pending):
            entry = entries[i]
            if entry.release_ns > now or i in going:
                continue
            mask = entry.processor.mask
            if not mask & held:
                run = min(entry.grain_ns, left[i])
                left[i] -= run
                runs.append((now + run, mask, i))
                if not left[i]:
                    if now + run > entry.due_ns:
                        return None
                    finishes[i] = now + run
                    pending.remove(i)
            held |= mask
        later = [until for until, _, _ in runs] + [entries[i].release_ns for i in pending if entries[i].release_ns > now]
        now = min(later, default=FAR_NS)
    return finishes
