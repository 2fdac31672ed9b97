"""The rolling plan: reservations for every job that waits and for the releases known to come, up to a horizon.

Made anew when jobs come or go. Tasks are placed in order of rank, each one's jobs in order of time, each job on the first of its
routes on which nothing placed before becomes late. So in overload the lowest rank goes without, not a little of everyone. A job
without a place is not lost: it is tried again at the next plan, until it can no longer finish.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from edgeengine.scheduling.demand import Demand, Key, Wanted
from edgeengine.scheduling.guide import Guide
from edgeengine.scheduling.job import RUNNING, Job, Move, ProcessorState
from edgeengine.scheduling.reservations import FAR_NS, Reservation, Timeline
from edgeengine.scheduling.routes import Piece, Route
from edgeengine.scheduling.view import View
from edgeengine.scheduling.weakly_hard import needed

# What bounds the time of a decision: a plan that looks at more reservations than this makes the next look less far ahead, and
# at HARD_STOP times as many the lowest ranks wait for the next plan. An attempt at a piece counts as so many by itself.
MOST_WORK = 500
HARD_STOP = 2
ATTEMPT_WORK = 6
LEAST_REACH = 1 / 8
OVERRUN = 20  # a subgraph past its expected end is taken to need another 1/20 of its length


class RollingPlan:
    """`timelines` by processor index (processors that exclude each other share one); `placed`: each job's pieces in order."""

    def __init__(self, guide: Guide, view: View):
        self._guide, self._demand = guide, Demand(guide)
        self.timelines = _timelines(view)
        self.distinct = list(dict.fromkeys(self.timelines))
        self.tolerance_ns = guide.tolerance_ns
        self.placed: dict[Key, list[Reservation]] = {}
        self.untried: list[Job] = []  # that wait, and that there was no time to place
        self._reach = 1.0  # share of the horizon that is planned
        self._attempts = 0
        self._ends: dict[Key, int] = {}  # expected ends of jobs whose last subgraph runs

    @property
    def expires_ns(self) -> int:
        """The first release that the plan counts on."""
        return self._demand.expires_ns

    @property
    def work(self) -> int:
        return self._attempts + sum(t.work for t in self.distinct)

    @property
    def exhausted(self) -> bool:
        """No time is left to place more."""
        return self.work >= HARD_STOP * MOST_WORK

    @property
    def spent(self) -> bool:
        """Nor to fill gaps with what was not placed."""
        return self.work >= (HARD_STOP + 1) * MOST_WORK

    def make(self, view: View, now: int) -> None:
        self._guide.refresh()
        begun, waiting = self._demand.collect(view, now, self._reach)
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
        self.untried.clear()
        for wanted in self._in_turn(begun, waiting):
            if not self.exhausted:
                self._place(wanted, now)
            elif wanted.job is not None:
                self.untried.append(wanted.job)
        if self.work > MOST_WORK:
            self._reach = max(self._reach / 2, LEAST_REACH)
        elif self.work < MOST_WORK // 3:
            self._reach = min(self._reach * 1.25, 1.0)

    def _in_turn(self, begun: list[Wanted], waiting: list[list[Wanted]]) -> Iterator[Wanted]:
        """By rank; in a class, what weakly-hard tasks may skip, and what waits for that, comes after all others."""
        skippable: dict[Key, Wanted] = {}
        of_class = None
        for task in self._guide.rank:
            if task.rank != of_class:
                yield from skippable.values()
                skippable, of_class = {}, task.rank
            own = waiting[task.index]
            if task.spec.firm is not None:
                must = needed(task, (w.index for w in own), sum(w.task is task for w in begun))
            else:
                must = repeat(True)
            for wanted, necessary in zip(own, must, strict=False):
                if necessary and wanted.after not in skippable:
                    yield wanted
                else:
                    skippable[task.index, wanted.index] = wanted
        yield from skippable.values()

    def piece(self, entry: Reservation) -> Piece | None:
        """What is left of a reservation whose job may start."""
        assert entry.job is not None
        return self._guide.piece(entry.task, entry.processor, entry.job.position, entry.stop)

    def length_ns(self, job: Job, move: Move) -> int:
        return self._guide.length_ns(job.task.rank, move)

    def in_time(self, job: Job, move: Move, now: int) -> bool:
        """Whether the job, going on with the move now, is expected to end before its deadline."""
        return now + self.length_ns(job, move) + job.task.best_ns[move.stop] <= job.due_ns

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
