"""The virtual-time driver: a heap of what happens next, the scheduler core, and nothing else.

At equal times entries follow clock.ORDER_*, then processor or task index: the same order in which the live engine's threads
wake on a virtual clock, so that both produce the same event log.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from edgeengine.clock import ORDER_FINISH, ORDER_RELEASE, ORDER_START, ORDER_WAKE
from edgeengine.errors import InternalError
from edgeengine.events import AnyAction, AnyEvent, EstimateChanged, Finished, Hold, LogLine, Released, Start, Started, Time, Wake
from edgeengine.scheduling import Job, Policy, Scheduler
from edgeengine.scheduling.drift import Drift
from edgeengine.scheduling.follow_up import first_training_releases, follow_ups
from edgeengine.simulation.disturbances import Disturbances
from edgeengine.simulation.execution import ExecutionTimes
from edgeengine.spec import Latency, Plan
from edgeengine.workload import Releases, Workload

NOTHING = Latency.constant(0)


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


class _Simulator:
    def __init__(
        self, workload: Workload, plan: Plan, policy: Policy, times: ExecutionTimes, stop_ns: int, seed: int,
        ended: Callable[[Job], object], record: Callable[[LogLine], object] | None, drift: Drift | None,
    ):  # fmt: skip
        self._scheduler = Scheduler(workload, plan, policy, seed=seed, record=record)
        self._ended = ended
        self._releases = Releases(workload, stop_ns, seed)
        self._task_index = {t.name: i for i, t in enumerate(workload.tasks)}
        self._processor_index = {p.name: i for i, p in enumerate(plan.processors)}
        around = plan.overheads.get("around", NOTHING)
        self._steps = {(t.task, s.subgraph, s.processor): (s.latency, t.around or around) for t in plan.tasks for s in t.steps}
        self._release = plan.overheads.get("release", NOTHING)
        self._timer = plan.overheads.get("timer", NOTHING)
        self._handoff = plan.overheads.get("handoff", NOTHING)
        self._next = plan.overheads.get("next", NOTHING)
        self._of = times.of
        self._drift = drift
        self._disturbances = Disturbances(plan, plan.effects) if plan.effects is not None else None
        self._finishing: dict[str, Finished] = {}  # of each processor, where disturbances may still move it
        self._stop_ns = stop_ns
        self._heap: list[tuple[int, int, int, int, AnyEvent | Start]] = []
        self._seq = count()
        self._due = 0  # releases of the present instant still to come
        self._timer_free_ns = 0  # until when the timer is at its releases

    def run(self) -> Simulation:
        for event in first_training_releases(self._scheduler.tasks.values()):
            self._step(event, None)
        self._push_releases(0)
        now, heap = 0, self._heap
        while heap and not (self._released_all and self._scheduler.idle):
            now, order, _, _, item = heapq.heappop(heap)
            if order == ORDER_START:
                self._begin(item, now)  # type: ignore[arg-type]
            elif order == ORDER_FINISH:
                if self._disturbances is not None and not self._is_end(item, now):  # type: ignore[arg-type]
                    continue
                self._step(item, item.processor)  # type: ignore[arg-type, union-attr]
            else:
                self._step(item, None)  # type: ignore[arg-type]
                if order == ORDER_RELEASE:
                    self._due -= 1
                    if self._due == 0:
                        self._push_releases(now)
        if not self._scheduler.idle:
            waiting = self._scheduler.alive()[0]
            raise InternalError(f"the policy leaves {waiting} and others waiting for ever")
        return Simulation([], self._scheduler.released, None, now)

    def _push(self, at_ns: int, order: int, index: int, item: AnyEvent | Start) -> None:
        heapq.heappush(self._heap, (at_ns, order, index, next(self._seq), item))

    @property
    def _released_all(self) -> bool:
        return self._due == 0 and self._releases.next_ns is None

    def _push_releases(self, now: int) -> None:
        """The releases of the next instant: the timer wakes once for them and works through them one by one."""
        release_ns = self._releases.next_ns
        if release_ns is None:
            self._scheduler.ended = []  # the step that ended them has seen to them
            self._follow(now, None)
            return
        at_ns = max(release_ns + self._of(self._timer), self._timer_free_ns)
        while self._releases.next_ns == release_ns:
            _, task, index = self._releases.pop()
            more = self._releases.next_ns == release_ns
            self._push(at_ns, ORDER_RELEASE, self._task_index[task], Released(at_ns, task, index, release_ns, None, more))
            self._due += 1
            self._timer_free_ns = at_ns
            at_ns += self._of(self._release)

    def _step(self, event: AnyEvent, processor: str | None) -> None:
        """Step the core as the thread that has `event`; `processor`: the one whose worker that is."""
        now = event.at_ns
        own = self._perform(self._scheduler.step(event), now, processor)
        drifted = self._drift.observe(event) if type(event) is Finished and self._drift is not None else []
        if self._scheduler.ended or self._released_all or drifted:
            self._report()
            own = self._follow(now, processor, drifted) or own
        if own is not None:  # a worker takes its own next subgraph last, and without a hand-off
            at_ns = now + self._of(self._next)
            if at_ns == now:
                self._begin(own, now)
            else:
                self._push(at_ns, ORDER_START, self._processor_index[own.processor], own)

    def _follow(self, now: int, processor: str | None, drifted: Sequence[EstimateChanged] = ()) -> Start | None:
        """Step what follows from the last step, at the same instant."""
        own = None
        pending = [*drifted, *follow_ups(self._scheduler, now, self._stop_ns, self._released_all)]
        for event in pending:
            own = self._perform(self._scheduler.step(event), now, processor) or own
            self._report()
            pending += follow_ups(self._scheduler, now, self._stop_ns, self._released_all)
        return own

    def _report(self) -> None:
        for job in self._scheduler.ended:
            self._ended(job)

    def _perform(self, actions: list[AnyAction], now: int, processor: str | None) -> Start | None:
        own = None
        for action in actions:
            if type(action) is Start:
                if action.processor == processor:
                    own = action
                else:
                    at_ns = now + self._of(self._handoff)
                    self._push(at_ns, ORDER_START, self._processor_index[action.processor], action)
            elif type(action) is Wake:
                self._push(max(action.at_ns, now), ORDER_WAKE, 0, Time(max(action.at_ns, now)))
            elif type(action) is Hold:
                self._push(action.until_ns, ORDER_WAKE, 0, Time(action.until_ns))
        return own

    def _begin(self, start: Start, now: int) -> None:
        self._scheduler.step(Started(now, start.task, start.index, start.subgraph, start.processor))
        latency, around = self._steps[start.task, start.subgraph, start.processor]
        # Zero would let a finish overtake the releases of its own instant.
        duration_ns = max(self._of(latency), 1)
        at_ns = now + duration_ns + self._of(around)
        finished = Finished(at_ns, start.task, start.index, start.subgraph, start.processor, "done", duration_ns)
        if self._disturbances is None:
            self._push(at_ns, ORDER_FINISH, self._processor_index[start.processor], finished)
        else:
            self._finishing[start.processor] = finished
            self._move_ends(self._disturbances.begin(start, now, at_ns - now))

    def _move_ends(self, ends: dict[str, int]) -> None:
        """Push each end anew; the one pushed before is then no longer the processor's, and passes without effect."""
        for name, at_ns in ends.items():
            old = self._finishing[name]
            duration_ns = old.duration_ns + at_ns - old.at_ns
            new = Finished(at_ns, old.task, old.index, old.subgraph, name, "done", duration_ns)
            self._finishing[name] = new
            self._push(at_ns, ORDER_FINISH, self._processor_index[name], new)

    def _is_end(self, finished: Finished, now: int) -> bool:
        """True if it is a run's end as last foreseen; those that its end speeds up are moved."""
        assert self._disturbances is not None
        if self._finishing.get(finished.processor) is not finished:
            return False
        del self._finishing[finished.processor]
        self._move_ends(self._disturbances.end(finished.processor, now))
        return True
