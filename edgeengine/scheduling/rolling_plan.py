"""The rolling plan: reservations for every job that waits and for the releases known to come, up to a horizon.

Made anew when jobs come or go. Tasks are placed in order of rank, each one's jobs in order of time, each job on the first of its
routes on which nothing placed before becomes late. So in overload the lowest rank goes without, not a little of everyone. A job
without a place is not lost: it is tried again at the next plan, until it can no longer finish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgeengine.scheduling.guide import Guide
from edgeengine.scheduling.job import RUNNING, Job, Move, ProcessorState, Task
from edgeengine.scheduling.reservations import FAR_NS, Reservation, Timeline
from edgeengine.scheduling.routes import Piece, Route
from edgeengine.scheduling.view import View

Key = tuple[int, int]  # task index, job index
# What bounds the time of a decision: a plan that looks at more reservations than this makes the next look less far ahead, and
# at HARD_STOP times as many the lowest ranks wait for the next plan. An attempt at a piece counts as so many by itself.
MOST_WORK = 500
HARD_STOP = 2
ATTEMPT_WORK = 6
LEAST_REACH = 1 / 8
OVERRUN = 20  # a subgraph past its expected end is taken to need another 1/20 of its length


@dataclass(slots=True)
class Wanted:
    """A job to place: `job` is None for a release still to come. `after` is whom it waits for (parent, previous job)."""

    task: Task
    index: int
    job: Job | None
    release_ns: int
    due_ns: int
    position: int
    after: Key | None = None


class RollingPlan:
    """`timelines` by processor index (processors that exclude each other share one); `placed`: each job's pieces in order."""

    def __init__(self, guide: Guide, view: View):
        self._guide = guide
        self.timelines = _timelines(view)
        self.distinct = list(dict.fromkeys(self.timelines))
        self.tolerance_ns = guide.tolerance_ns
        self.placed: dict[Key, list[Reservation]] = {}
        self._reach = 1.0  # share of the horizon that is planned
        self._attempts = 0
        self._ends: dict[Key, int] = {}  # expected ends of jobs whose last subgraph runs
        self.expires_ns = FAR_NS  # the first release that the plan counts on

    @property
    def work(self) -> int:
        return self._attempts + sum(t.work for t in self.distinct)

    def make(self, view: View, now: int) -> None:
        self._guide.refresh()
        begun, waiting = self._collect(view, now)
        previous, self.placed, self._ends = self.placed, {}, {}
        for timeline in self.distinct:
            timeline.clear(now)
        self._attempts = 0
        running: dict[ProcessorState, int] = {}
        for p in view.running():
            running[p] = self.expected_end(p, now)
            self.timelines[p.index].occupy(p, running[p])
            if p.job is not None and p.move is not None and p.move.stop == p.job.task.segments:
                self._ends[p.job.task.index, p.job.index] = running[p]
        for wanted in sorted(begun, key=lambda w: (w.task.rank, w.due_ns)):
            self._keep(wanted, previous.get((wanted.task.index, wanted.index), []), now, running)
        for task in self._guide.rank:
            for wanted in waiting[task.index]:
                if self.work < HARD_STOP * MOST_WORK:
                    self._place(wanted, now)
        if self.work > MOST_WORK:
            self._reach = max(self._reach / 2, LEAST_REACH)
        elif self.work < MOST_WORK // 3:
            self._reach = min(self._reach * 1.25, 1.0)

    def piece(self, entry: Reservation) -> Piece | None:
        """What is left of a reservation whose job may start."""
        assert entry.job is not None
        return self._guide.piece(entry.task, entry.processor, entry.job.position, entry.stop)

    def length_ns(self, job: Job, move: Move) -> int:
        return self._guide.length_ns(job.task.rank, move)

    def tolerates(self, job: Job, move: Move, now: int) -> bool:
        """Whether the move may start now on its idle processor without making a reservation late."""
        line, length = self.timelines[move.processor.index], self.length_ns(job, move)
        trial = Reservation(job.task, job.index, job, move.processor, move.start, move.stop, length, length, now, now + length)
        line.free_ns = max(line.free_ns, now)
        if not line.insert(trial):
            return False
        line.remove(trial)
        return True

    def expected_end(self, processor: ProcessorState, now: int) -> int:
        assert processor.move is not None
        begun = processor.started_ns if processor.started_ns is not None else now
        length = self._guide.length_ns(processor.job.task.rank if processor.job else 0, processor.move)
        return max(begun + length, now + length // OVERRUN)

    # ---- what is to be placed ----

    def _collect(self, view: View, now: int) -> tuple[list[Wanted], list[list[Wanted]]]:
        begun: list[Wanted] = []
        waiting: list[list[Wanted]] = [[] for _ in view.tasks]
        ahead = round(self._guide.horizon_ns * self._reach)
        horizon = now + ahead
        for job in view.jobs:
            task = job.task
            if job.deadline_ns is None or task.train:
                continue
            position = job.move.stop if job.state == RUNNING and job.move is not None else job.position
            if position >= task.segments or job.cancelling:
                continue
            after = self._waits_for(view, job)
            due = job.deadline_ns - self._guide.margin_ns[task.index]
            wanted = Wanted(task, job.index, job, max(job.release_ns, now), due, position, after)
            if job.state == RUNNING or position > 0:
                begun.append(wanted)
            else:
                waiting[task.index].append(wanted)
                horizon = max(horizon, min(job.deadline_ns, now + 2 * ahead))
        self.expires_ns = FAR_NS
        for task in self._guide.rank:
            if task.next_release_ns is not None:
                waiting[task.index] += self._to_come(task, now, horizon)
            elif task.parent is not None and not task.own_pattern and task.probability >= 0.5:
                waiting[task.index] += self._children(view, task, begun, waiting[task.parent.index], now)
            waiting[task.index].sort(key=lambda w: w.index)
        return begun, waiting

    def _waits_for(self, view: View, job: Job) -> Key | None:
        if job.previous is not None:
            return (job.task.index, job.previous.index)
        parent = job.task.parent
        if parent is not None and view.job(parent, job.index) is not None:
            return (parent.index, job.index)
        return None

    def _to_come(self, task: Task, now: int, horizon: int) -> Iterable[Wanted]:
        assert task.next_release_ns is not None and task.period_ns is not None
        if task.deadline_ns is None:
            return
        release, index = task.next_release_ns, task.last_index + 1
        if release + task.period_ns // 8 < now:
            return  # it did not come: the task pauses, or the run is ending
        grace = self._guide.grace_ns  # a release of this very instant may not be known yet, a late timer's neither
        while release < horizon:
            if release + grace >= now:
                self.expires_ns = min(self.expires_ns, release + grace)
                due = release + task.deadline_ns - self._guide.margin_ns[task.index]
                after = (task.parent.index, index) if task.parent is not None else None
                yield Wanted(task, index, None, max(release, now), due, 0, after)
            release, index = release + task.period_ns, index + 1

    def _children(self, view: View, task: Task, begun: list[Wanted], parents: list[Wanted], now: int) -> Iterable[Wanted]:
        """Jobs that will be released when their parents finish."""
        assert task.parent is not None
        if task.deadline_ns is None:
            return
        final = [p.job for p in view.running() if p.job is not None and p.job.task is task.parent]
        seen = set()
        own = [(w.index, w.job, w.release_ns) for w in (*begun, *parents) if w.task is task.parent]
        for index, job, release in [*own, *((j.index, j, j.release_ns) for j in final)]:
            if index not in seen:
                seen.add(index)
                nominal = job.release_ns if job is not None else release
                due = nominal + task.deadline_ns - self._guide.margin_ns[task.index]
                yield Wanted(task, index, None, max(nominal, now), due, 0, (task.parent.index, index))

    # ---- placing ----

    def _keep(self, wanted: Wanted, previous: list[Reservation], now: int, running: dict[ProcessorState, int]) -> None:
        """A begun job stays where it was planned, else goes where it still is in time, else waits behind the rest."""
        job = wanted.job
        assert job is not None
        release = running[job.processor] if job.processor is not None else now
        kept = self._rest(wanted, previous)
        routes = self._guide.routes(wanted.task, wanted.position)
        for route in [kept, *routes] if kept else routes:
            if self._try_route(wanted, route, 0, release, None):
                return
        if routes:
            last = job.processor or job.last_processor
            route = min(routes, key=lambda r: r[0].processor is not last)
            pieces = [self._reservation(wanted, piece, release, FAR_NS) for piece in route]
            for piece in pieces:
                self.timelines[piece.processor.index].force(piece)
            self.placed[wanted.task.index, wanted.index] = pieces

    def _rest(self, wanted: Wanted, previous: list[Reservation]) -> Route:
        """What is left of the pieces planned before; empty if they do not fit the job's position any more."""
        left = [(e.processor, max(e.start, wanted.position), e.stop) for e in previous if e.stop > wanted.position]
        if not left or left[0][1] != wanted.position or not all(p.available for p, _, _ in left):
            return ()
        pieces = [self._guide.piece(wanted.task, p, start, stop) for p, start, stop in left]
        return tuple(p for p in pieces if p is not None) if None not in pieces else ()

    def _place(self, wanted: Wanted, now: int) -> bool:
        parent: Reservation | None = None
        release = wanted.release_ns
        if wanted.after is not None:
            pieces = self.placed.get(wanted.after)
            if pieces:
                parent = pieces[-1]
            elif wanted.after in self._ends:
                release = max(release, self._ends[wanted.after])
            elif wanted.job is None or wanted.job.blockers:
                return False
        cut = self._guide.reserved_ns[wanted.task.index]
        for tail in (cut, 0) if cut else (0,):
            if self._place_by(wanted, tail, release, parent):
                return True
        return parent is not None and self._repair(wanted, parent, now)

    def _place_by(self, wanted: Wanted, tail: int, release: int, parent: Reservation | None) -> bool:
        routes = self._guide.routes(wanted.task, wanted.position)
        if not self._guide.earliest:
            return any(self._try_route(wanted, route, tail, release, parent) for route in routes)
        best: tuple[int, Route] | None = None
        for route in routes:
            if (len(route) == 1 or best is None) and self._try_route(wanted, route, tail, release, parent, keep=False):
                finish = self._finish
                if best is None or finish < best[0]:
                    best = (finish, route)
        return best is not None and self._try_route(wanted, best[1], tail, release, parent)

    def _try_route(
        self, wanted: Wanted, route: Route, tail: int, release: int, parent: Reservation | None, keep: bool = True
    ) -> bool:
        """Reserve the route's pieces one after the other; all or none."""
        left = 0
        for piece in route:
            left += piece.length_ns
        earliest = release if parent is None else max(release, parent.release_ns + parent.length_ns)
        if earliest + left > wanted.due_ns - tail:
            return False
        done: list[Reservation] = []
        ready, before = release, parent
        for piece in route:
            left -= piece.length_ns
            self._attempts += ATTEMPT_WORK
            line = self.timelines[piece.processor.index]
            entry = self._reservation(wanted, piece, ready, wanted.due_ns - tail - left)
            after = None
            if before is not None:
                if self._one_by_one(before, entry):
                    entry.release_ns, after = max(entry.release_ns, before.release_ns), before
                else:
                    entry.release_ns = max(entry.release_ns, before.finish_ns)
            if not line.insert(entry, after):
                break
            done.append(entry)
            before, ready = entry, release
        else:
            self._finish = done[-1].finish_ns
            if keep:
                for earlier, later in zip([parent, *done], done, strict=False):
                    if earlier is not None and not self._one_by_one(earlier, later):
                        earlier.due_ns = min(earlier.due_ns, earlier.finish_ns)
                self.placed[wanted.task.index, wanted.index] = done
                return True
        complete = len(done) == len(route)
        for entry in reversed(done):
            self.timelines[entry.processor.index].remove(entry)
        return complete

    def _one_by_one(self, earlier: Reservation, later: Reservation) -> bool:
        """Their timeline itself lets the later one wait for the earlier."""
        line = self.timelines[earlier.processor.index]
        return line is self.timelines[later.processor.index] and not line.joint

    def _reservation(self, wanted: Wanted, piece: Piece, release: int, deadline: int) -> Reservation:
        return Reservation(
            wanted.task, wanted.index, wanted.job, piece.processor, piece.start, piece.stop, piece.length_ns, piece.grain_ns,
            release, deadline,
        )  # fmt: skip

    def _repair(self, wanted: Wanted, last: Reservation, now: int) -> bool:
        """The child has no place behind its parent: move the parent, on each of its routes, with room kept for the child."""
        key = (last.task.index, last.index)
        pieces = self.placed[key]
        if last.task is wanted.task or pieces[0].start > 0 or (last.job is not None and last.job.state == RUNNING):
            return False
        saved = [(t, list(t.entries), [(e, e.due_ns) for e in t.entries]) for t in self.distinct]
        for piece in pieces:
            self.timelines[piece.processor.index].remove(piece)
        cut = self._guide.shortest_ns[wanted.task.index]
        due = last.index
        for route in self._guide.routes(last.task, 0):
            parent = Wanted(last.task, due, last.job, pieces[0].release_ns, self._due(pieces, last), 0)
            if self._try_route(parent, route, cut, pieces[0].release_ns, None):
                if self._place_by(wanted, 0, wanted.release_ns, self.placed[key][-1]):
                    return True
                for piece in self.placed[key]:
                    self.timelines[piece.processor.index].remove(piece)
        for timeline, entries, dues in saved:
            timeline.entries = entries
            for entry, was in dues:
                entry.due_ns = was
            timeline.refresh()
        self.placed[key] = pieces
        return False

    def _due(self, pieces: list[Reservation], last: Reservation) -> int:
        job = last.job
        nominal = job.deadline_ns if job is not None else None
        if nominal is None:
            assert last.task.deadline_ns is not None
            nominal = pieces[0].release_ns + last.task.deadline_ns
        return nominal - self._guide.margin_ns[last.task.index]


def _timelines(view: View) -> list[Timeline]:
    """One per group of processors that exclude each other, directly or through a third."""
    group = list(range(len(view.processors)))
    for p in view.processors:
        for q in view.processors[: p.index]:
            if p.mask & q.mask:
                old, new = group[p.index], group[q.index]
                group = [new if g == old else g for g in group]
    made = {}
    for g in group:
        members = [p for p in view.processors if group[p.index] == g]
        joint = not all(p.mask & q.mask for p in members for q in members)
        cut = any(m.start > 0 and m.processor in members for t in view.tasks for moves in t.moves for m in moves)
        made[g] = Timeline(cut, joint)
    return [made[g] for g in group]
