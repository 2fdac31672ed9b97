"""The virtual-time driver: a heap of what happens next, the scheduler core, and nothing else.

At equal times entries follow clock.ORDER_*, then processor or task index: the same order in which the live engine's threads
wake on a virtual clock, so that both produce the same event log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate, count
from operator import attrgetter

from edgeengine.clock import ORDER_FINISH, ORDER_RELEASE, ORDER_START, ORDER_WAKE
from edgeengine.errors import InternalError
from edgeengine.events import AnyAction, AnyEvent, EstimateChanged, Hold, LogLine, Released, Start, Time, Wake
from edgeengine.scheduling import Job, Policy, Scheduler
from edgeengine.scheduling.drift import Drift
from edgeengine.scheduling.follow_up import first_training_releases, follow_ups
from edgeengine.scheduling.job import ProcessorState
from edgeengine.simulation.disturbances import Disturbances
from edgeengine.simulation.execution import ExecutionTimes
from edgeengine.simulation.lessons import Lessons
from edgeengine.spec import Plan
from edgeengine.workload import Releases, Workload

# At one time by clock.ORDER_*, then by processor index.
FINISH_RANK, RELEASE_RANK, WAKE_RANK, START_RANK = (o << 32 for o in (ORDER_FINISH, ORDER_RELEASE, ORDER_WAKE, ORDER_START))
_INDEX = attrgetter("index")


@dataclass
class Simulation:
    """What a simulated run left: its ended jobs in order of end, how many were released by task, the event log if kept, and
    when it was over. Of a run that was streamed, `jobs` is empty and there is no log.
    """

    jobs: list[Job]
    released: dict[str, int]
    log: list[LogLine] | None
    end_ns: int


def simulate(
    workload: Workload,
    plan: Plan,
    policy: Policy,
    times: ExecutionTimes,
    *,
    stop_ns: int,
    seed: int = 0,
    keep_log: bool = False,
    track_drift: bool = True,
) -> Simulation:
    """Release every job with release < `stop_ns`, then drain. Every job is kept; for long runs see `stream`.

    Without `track_drift` estimates stay those of the plan.
    """
    jobs: list[Job] = []
    log: list[LogLine] | None = [] if keep_log else None
    record = None if log is None else log.append
    done = stream(
        workload, plan, policy, times, stop_ns=stop_ns, seed=seed, ended=jobs.append, record=record, track_drift=track_drift
    )
    return replace(done, jobs=jobs, log=log)


def stream(
    workload: Workload,
    plan: Plan,
    policy: Policy,
    times: ExecutionTimes,
    *,
    stop_ns: int,
    seed: int = 0,
    ended: Callable[[Job], object],
    record: Callable[[LogLine], object] | None = None,
    track_drift: bool = True,
) -> Simulation:
    """As `simulate`, keeping nothing: `ended` is given each job when it has ended, `record` each step of the scheduler."""
    drift = Drift(plan) if track_drift else None
    return _Simulator(workload, plan, policy, times, stop_ns, seed, ended, record, drift).run()


Run = tuple[ProcessorState, int, int]  # what runs there; its duration; when it ends
# (time, rank, what happens), at equal times by rank, which no two have. A processor: the run it was given begins; None: the timer
# wakes for releases.
Entry = tuple[int, int, Run | ProcessorState | Time | Released | None]


class _Simulator:
    def __init__(
        self, workload: Workload, plan: Plan, policy: Policy, times: ExecutionTimes, stop_ns: int, seed: int,
        ended: Callable[[Job], object], record: Callable[[LogLine], object] | None, drift: Drift | None,
    ):  # fmt: skip
        self._scheduler = Scheduler(workload, plan, policy, seed=seed, record=record)
        self._ended = ended
        self._releases = Releases(workload, stop_ns, seed)
        self._tasks = self._scheduler.tasks
        self._processors = {p.name: p for p in self._scheduler.view.processors}
        around = plan.overheads.get("around")
        latency = {
            (t.task, s.subgraph, s.processor): (s.latency, t.around or around, max(s.latency.p50_ns, 1))
            for t in plan.tasks
            for s in t.steps
        }
        self._latency = {m: latency[name, *key] for name, task in self._tasks.items() for key, m in task.move_of.items()}
        self._release, self._timer = plan.overheads.get("release"), plan.overheads.get("timer")
        self._handoff, self._next = plan.overheads.get("handoff"), plan.overheads.get("next")
        self._of = times.of
        self._drift = drift
        self._disturbances = Disturbances(plan, plan.effects) if plan.effects is not None else None
        self._under_way: dict[str, Run] = {}  # on each processor, where disturbances may still move its end
        self._stop_ns = stop_ns
        self._trains = any(t.is_training for t in workload.tasks)
        self._lessons = Lessons(workload, stop_ns)
        self._heap: list[Entry] = []
        self._starts: list[ProcessorState] = []  # whose runs begin at the present instant
        self._wake_rank = count(WAKE_RANK)
        self._due: list[tuple[str, int]] = []  # the jobs that the timer releases next, the last first
        self._due_ns = 0  # their nominal time
        self._due_at: list[int] = []  # when it comes to each after the first, the last first; empty: at once
        self._released_all = self._releases.next_ns is None
        self._timer_free_ns = 0  # until when the timer is at its releases

    def run(self) -> Simulation:
        scheduler = self._scheduler
        for event in self._with_samples(first_training_releases(scheduler.tasks.values()), 0):
            self._do(scheduler.step(event), 0, None)
        self._push_releases(0)
        now, heap, starts = 0, self._heap, self._starts
        while True:
            while starts and not (heap and heap[0][0] == now):  # all else of the instant has happened
                if len(starts) > 1:
                    starts.sort(key=_INDEX)
                self._begin(starts.pop(0), now)
            if not heap or (self._released_all and scheduler.idle):
                break
            now, _, item = heappop(heap)
            if type(item) is tuple:
                if self._disturbances is None or self._is_end(item, now):
                    p, duration_ns, _ = item
                    self._finish(p, duration_ns, now)
            elif item is None:
                self._release_due(now)
            elif type(item) is ProcessorState:
                starts.append(item)
            else:
                self._do(scheduler.step(item), now, None)  # type: ignore[arg-type]
        if not scheduler.idle:
            raise InternalError(f"the policy leaves {scheduler.alive()[0]} and others waiting for ever")
        return Simulation([], scheduler.released, None, now)

    def _push(self, at_ns: int, rank: int, item: Run | ProcessorState | Time | Released | None) -> None:
        heappush(self._heap, (at_ns, rank, item))

    def _push_releases(self, now: int) -> None:
        """The releases of the next instant: the timer wakes once for them and works through them one by one."""
        releases, of = self._releases, self._of
        release_ns = releases.next_ns
        if release_ns is None:
            self._released_all = True
            self._scheduler.ended = []  # the step that ended them has seen to them
            self._follow(now, None)
            return
        at_ns = max(release_ns if self._timer is None else release_ns + of(self._timer), self._timer_free_ns)
        heappush(self._heap, (at_ns, RELEASE_RANK, None))
        self._due, self._due_ns = releases.pop()[::-1], release_ns
        if self._release is not None:
            times = list(accumulate((of(self._release) for _ in self._due), initial=at_ns))
            at_ns, self._due_at = times[-2], times[-2:0:-1]
        self._timer_free_ns = at_ns

    def _release_due(self, now: int) -> None:
        due, at = self._due, self._due_at
        while due:
            task, index = due.pop()
            self._do(self._scheduler.release(self._tasks[task], index, self._due_ns, now, bool(due)), now, None)
            if at and at[-1] > now:
                self._push(at.pop(), RELEASE_RANK, None)
                return
            if at:
                at.pop()
        self._push_releases(now)

    def _finish(self, p: ProcessorState, duration_ns: int, now: int) -> None:
        planned_ns = self._expected_ns(p)
        actions = self._scheduler.finish(p, now, duration_ns)
        self._do(actions, now, p, self._drift.add(p.name, now, duration_ns / planned_ns) if self._drift is not None else ())

    def _expected_ns(self, p: ProcessorState) -> int:
        """What the run on `p` was to take, tensors moved included."""
        job, move = p.job, p.move
        assert job is not None and move is not None
        planned_ns = self._latency[move][2]
        if not job.task.moved:
            return planned_ns
        last = job.last_processor
        return planned_ns + move.moved_ns + (move.switch_ns.get(last.name, 0) if last is not None else 0)

    def _do(
        self, actions: list[AnyAction], now: int, worker: ProcessorState | None, drifted: Sequence[EstimateChanged] = (),
    ) -> None:  # fmt: skip
        """What the step just made asks for, as the thread that made it; `worker`: the processor whose worker that is."""
        own = self._perform(actions, now, worker) if actions else None
        ended = self._scheduler.ended
        for job in ended:
            self._ended(job)
        if self._released_all or drifted or (self._trains and ended):
            own = self._follow(now, worker, drifted) or own
        if own is not None:  # a worker takes its own next subgraph last, and without a hand-off
            at_ns = now if self._next is None else now + self._of(self._next)
            if at_ns == now:
                self._begin(own, now)
            else:
                self._push(at_ns, START_RANK + own.index, own)

    def _follow(self, now: int, worker: ProcessorState | None, drifted: Sequence[EstimateChanged] = ()) -> ProcessorState | None:
        """Step what follows from the last step, at the same instant."""
        own = None
        pending: list[AnyEvent] = [*drifted, *self._with_samples(self._followed(now), now)]
        for event in pending:
            own = self._perform(self._scheduler.step(event), now, worker) or own
            for job in self._scheduler.ended:
                self._ended(job)
            pending += self._with_samples(self._followed(now), now)
        return own

    def _followed(self, now: int) -> list[AnyEvent]:
        return follow_ups(self._scheduler, now, self._stop_ns, self._released_all)

    def _with_samples(self, events: Sequence[AnyEvent], now: int) -> list[AnyEvent]:
        """The events, but for training steps whose samples are yet to come: these happen later."""
        due, later = self._lessons.sort(events, now)
        for event in later:
            self._push(event.at_ns, next(self._wake_rank), event)
        return due

    def _perform(self, actions: list[AnyAction], now: int, worker: ProcessorState | None) -> ProcessorState | None:
        own = None
        for action in actions:
            if type(action) is Start:
                p = self._processors[action.processor]
                if p is worker:
                    own = p
                elif self._handoff is None:
                    self._starts.append(p)
                else:
                    self._push(now + self._of(self._handoff), START_RANK + p.index, p)
            elif type(action) is Wake:
                self._push(max(action.at_ns, now), next(self._wake_rank), Time(max(action.at_ns, now)))
            elif type(action) is Hold:
                self._push(action.until_ns, next(self._wake_rank), Time(action.until_ns))
        return own

    def _begin(self, p: ProcessorState, now: int) -> None:
        self._scheduler.start(p, now)
        latency, around, _ = self._latency[p.move]  # type: ignore[index]
        # Zero would let a finish overtake the releases of its own instant.
        duration_ns = self._of(latency) or 1
        end_ns = now + duration_ns if around is None else now + duration_ns + self._of(around)
        run = (p, duration_ns, end_ns)
        if self._disturbances is None:
            heappush(self._heap, (end_ns, FINISH_RANK + p.index, run))
        else:
            self._under_way[p.name] = run
            self._move_ends(self._disturbances.begin(p, now, end_ns - now))

    def _move_ends(self, ends: dict[str, int]) -> None:
        """Push each end anew; the one pushed before is then no longer the processor's, and passes without effect."""
        for name, end_ns in ends.items():
            p, duration_ns, old_end_ns = self._under_way[name]
            self._under_way[name] = run = (p, duration_ns + end_ns - old_end_ns, end_ns)
            self._push(end_ns, FINISH_RANK + p.index, run)

    def _is_end(self, run: Run, now: int) -> bool:
        """True if it is a run's end as last foreseen; those that its end speeds up are moved."""
        assert self._disturbances is not None
        name = run[0].name
        if self._under_way.get(name) is not run:
            return False
        del self._under_way[name]
        self._move_ends(self._disturbances.end(name, now))
        return True
