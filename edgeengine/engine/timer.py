"""The timer: releases jobs at their nominal times, sends the wake-ups the scheduler asked for, looks for runs that hang."""

from __future__ import annotations

import heapq
import threading

from edgeengine.clock import ORDER_RELEASE
from edgeengine.devices.threads import TIMER_PRIORITY, real_time
from edgeengine.engine.runtime import STOP, Runtime
from edgeengine.engine.watchdog import LOOK, Watchdog
from edgeengine.events import Released, Time
from edgeengine.workload import Releases


class Timer:
    """However late the thread wakes, a job carries its nominal release: load is open-loop."""

    def __init__(self, runtime: Runtime, releases: Releases, watchdog: Watchdog):
        self._runtime, self._releases, self._watchdog = runtime, releases, watchdog
        self._wakes: list[int] = []
        self.mailbox = runtime.clock.mailbox(ORDER_RELEASE, 0)
        runtime.timer = self.mailbox
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = self._runtime.clock.start_thread(self._runtime.guard(self._loop), "edgeengine timer")

    def _loop(self) -> None:
        runtime = self._runtime
        real_time(TIMER_PRIORITY)
        if self._wait(0):
            return
        runtime.start_training()
        while True:
            self._release_due()
            if self._releases.next_ns is None and not runtime.released_all:
                runtime.finish_releasing()
            while self._wakes and self._wakes[0] <= runtime.now():
                heapq.heappop(self._wakes)
                runtime.step(Time)
            check_ns = self._watchdog.next_ns
            if check_ns is not None and check_ns <= runtime.now():
                self._watchdog.check(runtime.now())
            times = (self._releases.next_ns, self._wakes[0] if self._wakes else None, self._watchdog.next_ns)
            due = [t for t in times if t is not None]
            if self._wait(min(due) if due else None):
                return

    def _wait(self, until_ns: int | None) -> bool:
        """Wait for `until_ns` or a message; True when told to stop."""
        item = self.mailbox.get(None if until_ns is None else until_ns + self._runtime.epoch_ns)
        if item is STOP:
            return True
        if item is not None and item is not LOOK:
            heapq.heappush(self._wakes, item)
        return False

    def _release_due(self) -> None:
        due = []
        now = self._runtime.now()
        while self._releases.next_ns is not None and self._releases.next_ns <= now:
            release_ns = self._releases.next_ns
            due += [(release_ns, task, index) for task, index in self._releases.pop()]
        for left, (release_ns, task, index) in zip(range(len(due) - 1, -1, -1), due, strict=True):
            more = left > 0
            self._runtime.step(lambda now, r=release_ns, t=task, i=index, m=more: Released(now, t, i, r, None, m))  # type: ignore[misc]
