"""The one lock around the scheduler: whoever has an event steps the core, and hands its starts to the workers.

There is no scheduler thread. A worker that finished takes its own next subgraph straight from the step, without a hand-off.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from edgeengine.clock import ORDER_MAIN, Clock, Mailbox
from edgeengine.errors import InternalError, UserError
from edgeengine.events import AnyAction, AnyEvent, Cancel, Cancelled, EstimateChanged, Finished, Hold, Start, Wake
from edgeengine.scheduling import Job, Scheduler
from edgeengine.scheduling.drift import Drift
from edgeengine.scheduling.follow_up import follow_ups

STOP = object()


class Runtime:
    """Times are nanoseconds since `epoch_ns` on the clock. `on_ended` is called outside the lock for each job that ended,
    `on_failure` when one of our threads died (see `failure`).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        drift: Drift,
        clock: Clock,
        stop_ns: int | None,
        on_ended: Callable[[Job], None],
        on_failure: Callable[[], None],
    ):
        self.clock, self.scheduler, self._drift = clock, scheduler, drift
        self._clock_ns = clock.now_ns
        self.epoch_ns = clock.now_ns()
        self.stop_ns = stop_ns
        self.released_all = False  # the timer has no more releases
        self.workers: dict[str, Mailbox] = {}
        self.cut_short: Callable[[str, int], None] = lambda task, index: None  # the running job; see Watchdog
        self.timer: Mailbox | None = None
        self.drained = clock.mailbox(ORDER_MAIN, 0)
        self.failure: BaseException | None = None  # of the scheduler or a thread of ours: the run is over
        self.closing = False
        self._over = False
        self._on_ended, self._on_failure = on_ended, on_failure
        self._lock = threading.Lock()

    def now(self) -> int:
        return max(self.clock.now_ns() - self.epoch_ns, 0)

    def step(self, make_event: Callable[[int], AnyEvent], processor: str | None = None) -> Start | None:
        """Step the core with the event made for the present instant; returns the start that `processor`'s worker takes itself.

        The instant is taken inside the lock, so that the core sees time in order. A UserError of `make_event` or the core is the
        caller's; anything else ends the run and is raised as InternalError.
        """
        try:
            with self._lock:
                now = max(self._clock_ns() - self.epoch_ns, 0)
                event = make_event(now)
                own = self._perform(self.scheduler.step(event), processor)
                ended = self.scheduler.ended
                drifted = self._drift.observe(event) if type(event) is Finished else []
                if ended or self.released_all or drifted:
                    own = self._follow(now, ended, processor, drifted) or own
                over = self._is_over()
        except UserError:
            raise
        except Exception as e:
            self.fail(e)
            raise InternalError(f"the engine stopped: {e}") from e
        self._report(ended, over)
        return own

    def close(self) -> None:
        """Cancel every job that lives, in one go; nothing is released from now on."""
        ended: list[Job] = []
        with self._lock:
            self.closing, self.stop_ns = True, 0
            if self.failure is None:
                for job in self.scheduler.alive():
                    self._perform(self.scheduler.step(Cancelled(self.now(), job.task.name, job.index)), None)
                    ended += self.scheduler.ended
        self._report(ended, False)

    def fail(self, error: BaseException) -> None:
        """The run is over: tell everyone who waits."""
        if self.failure is None:
            self.failure = error
        try:
            self._on_failure()
        finally:
            self.drained.put(True)

    def _follow(self, now: int, ended: list[Job], processor: str | None, drifted: Sequence[EstimateChanged] = ()) -> Start | None:
        """Step what follows from the last step, at the same instant; adds to `ended`."""
        own = None
        pending = [*drifted, *follow_ups(self.scheduler, now, self.stop_ns, self.released_all)]
        for event in pending:
            own = self._perform(self.scheduler.step(event), processor) or own
            ended += self.scheduler.ended
            pending += follow_ups(self.scheduler, now, self.stop_ns, self.released_all)
        return own

    def _report(self, ended: list[Job], over: bool) -> None:
        for job in ended:
            self._on_ended(job)
        if over:
            self.drained.put(True)

    def _is_over(self) -> bool:
        """Whether the run ended just now (once)."""
        if self._over or not self.released_all or not self.scheduler.idle:
            return False
        self._over = True
        return True

    def guard(self, loop: Callable[[], None]) -> Callable[[], None]:
        """The body of one of our threads. A defect in it (a policy that breaks the contract, say) ends the run, not silently."""

        def body() -> None:
            try:
                loop()
            except BaseException as e:  # noqa: BLE001  raised again to whoever waits
                self.fail(e)

        return body

    def finish_releasing(self) -> None:
        """The timer released its last job: from now on an idle scheduler means the run is over."""
        ended: list[Job] = []
        with self._lock:
            self.released_all = True
            self.scheduler.ended = []  # reported by the step that ended them
            self._follow(self.now(), ended, None)
            over = self._is_over()
        self._report(ended, over)

    def _perform(self, actions: list[AnyAction], processor: str | None) -> Start | None:
        own = None
        for action in actions:
            if type(action) is Start:
                if action.processor == processor:
                    own = action
                else:
                    self.workers[action.processor].put(action)
            elif type(action) is Cancel:
                self.cut_short(action.task, action.index)
            elif type(action) is Wake:
                self._wake(action.at_ns)
            elif type(action) is Hold:
                self._wake(action.until_ns)
        return own

    def _wake(self, at_ns: int) -> None:
        assert self.timer is not None
        self.timer.put(at_ns)
