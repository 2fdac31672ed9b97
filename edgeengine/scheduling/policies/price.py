"""The price policy: a rolling plan of reservations by rank, as planning's prices and what-ifs advise (see rolling_plan, guide).

A processor is left idle for a moment rather than given to what would make a reservation late: that is how a long subgraph does
not block an imminent critical release. Jobs without a deadline fill what no reservation needs. What can no longer finish is
dropped.
"""

from __future__ import annotations

from edgeengine.events import AnyAction, Start, Wake
from edgeengine.scheduling.dropping import sift
from edgeengine.scheduling.guaranteed import start_guaranteed
from edgeengine.scheduling.guide import Guide
from edgeengine.scheduling.job import READY, Job, ProcessorState
from edgeengine.scheduling.policies.edf import urgency
from edgeengine.scheduling.reservations import FAR_NS, Timeline
from edgeengine.scheduling.rolling_plan import RollingPlan
from edgeengine.scheduling.slack import awaited_ns
from edgeengine.scheduling.view import Policy, View
from edgeengine.scheduling.weakly_hard import as_skips, is_guaranteed


class Price:
    name = "price"

    def __init__(self) -> None:
        self._instead: Policy | None = None  # what a what-if preferred
        self._plan: RollingPlan | None = None
        self._made_at = -1
        self._used: set[Timeline] = set()  # timelines that something started on since the plan was made
        self._expected: dict[ProcessorState, int] = {}  # when what started there should have ended
        self._wake_ns = -1

    def prepare(self, view: View) -> None:
        self._instead = _preferred(view)
        self._plan = RollingPlan(Guide(view), view)

    @property
    def work(self) -> int:
        """What the last plan cost, in reservations looked at."""
        return self._plan.work if self._plan is not None else 0

    def decide(self, view: View, now: int) -> list[AnyAction]:
        if self._plan is None:
            self.prepare(view)
            assert self._plan is not None
        if self._instead is not None:
            return self._instead.decide(view, now)
        actions, ready = sift(view, now, "hopeless")
        if actions:
            return as_skips(view, actions)  # asked again at once, when they have ended
        extra = [j for j in ready if j.deadline_ns is None or j.task.train]
        if self._outdated(view, self._plan, now, bool(extra)):
            self._plan.make(view, now)
            self._made_at = view.changes
            self._used.clear()
        actions, busy = start_guaranteed(view, now)
        for start in actions:
            if isinstance(start, Start):
                self._note_guaranteed(view, self._plan, start, now)
        planned, busy = self._start_planned(view, self._plan, now, busy)
        untried = [j for j in self._plan.untried if j.state == READY and not is_guaranteed(j)]
        filled = self._fill(view, self._plan, now, untried + extra, busy)
        return [*actions, *planned, *filled, *self._wake(self._plan, ready, now)]

    def _outdated(self, view: View, plan: RollingPlan, now: int, extra: bool) -> bool:
        """Jobs came or went, time did not pass as expected, or what is on the timelines has to be known exactly."""
        late = [p for p, end in self._expected.items() if p.job is None and abs(now - end) > plan.tolerance_ns]
        for p in [p for p in self._expected if p.job is None]:
            del self._expected[p]
        return self._made_at != view.changes or now > plan.expires_ns or bool(late) or (extra and bool(self._used))

    def _note_guaranteed(self, view: View, plan: RollingPlan, start: Start, now: int) -> None:
        job = next(j for j in view.ready if j.task.name == start.task and j.index == start.index)
        move = next((m for m in view.moves(job) if (m.subgraph, m.processor.name) == (start.subgraph, start.processor)), None)
        if move is not None:
            self._note(plan.timelines[move.processor.index], move.processor, now + plan.length_ns(job, move))

    def _start_planned(self, view: View, plan: RollingPlan, now: int, busy: int) -> tuple[list[AnyAction], int]:
        actions: list[AnyAction] = []
        started = set()
        for line in plan.distinct:
            for entry in line.startable():
                piece = plan.piece(entry)
                if entry.job is not None and is_guaranteed(entry.job):
                    continue
                if piece is not None and entry.job not in started and view.can_start(entry.processor, now, busy):
                    started.add(entry.job)
                    self._note(line, entry.processor, now + piece.first_ns)
                    actions.append(Start(entry.task.name, entry.index, piece.first.subgraph, entry.processor.name))
                busy |= entry.processor.mask  # what waits for it keeps it from those behind
        return actions, busy

    def _fill(self, view: View, plan: RollingPlan, now: int, extra: list[Job], busy: int) -> list[AnyAction]:
        """Start jobs without a deadline, or that the plan had no time for, where neither they nor a reservation become late."""
        actions: list[AnyAction] = []
        for job in sorted(extra, key=urgency):
            if plan.spent and not job.task.train and job.deadline_ns is not None:
                continue
            free = [m for m in view.moves(job) if view.can_start(m.processor, now, busy) and plan.in_time(job, m, now)]
            for move in sorted(free, key=lambda m, j=job: m.p50_ns + j.task.best_ns[m.stop]):  # type: ignore[misc]
                line = plan.timelines[move.processor.index]
                release_ns = awaited_ns(view, job, move, now, busy)
                if release_ns is not None:
                    actions.append(Wake(release_ns))
                    break
                if line not in self._used and plan.tolerates(job, move, now):
                    busy |= move.processor.mask
                    self._note(line, move.processor, now + plan.length_ns(job, move))
                    actions.append(Start(job.task.name, job.index, move.subgraph, move.processor.name))
                    break
        return actions

    def _note(self, line: Timeline, processor: ProcessorState, end_ns: int) -> None:
        self._used.add(line)
        self._expected[processor] = end_ns

    def _wake(self, plan: RollingPlan, ready: list[Job], now: int) -> list[AnyAction]:
        """Come back when a release that the plan counts on fails to come, or a job that waits can no longer finish."""
        times = [j.deadline_ns - j.remaining_ns + 1 for j in ready if j.deadline_ns is not None and not j.task.train]
        at_ns = min([plan.expires_ns + 1, *times])
        if not ready or at_ns >= FAR_NS or at_ns <= now or now < self._wake_ns <= at_ns:
            return []
        self._wake_ns = at_ns
        return [Wake(at_ns)]


def _preferred(view: View) -> Policy | None:
    from edgeengine.scheduling.policies import BUILT_IN

    given = view.guidance
    if given is None or not given.policy:
        return None
    make = BUILT_IN[given.policy]
    return make(drop=given.drop) if given.drop else make()
