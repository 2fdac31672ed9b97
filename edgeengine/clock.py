"""Time for the engine's threads: integer nanoseconds, and the few blocking calls they make.

Everything that waits goes through a Clock, so that tests run the real threads on a virtual one
(`edgeengine.testing.virtual`) without sleeping. Nothing else in the engine may call `time`.
"""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

# Who goes first when two things happen at the same nanosecond, live and simulated: work that ends frees a processor before a
# release asks for one, and both precede timers and starts.
ORDER_FINISH, ORDER_RELEASE, ORDER_WAKE, ORDER_START, ORDER_MAIN = range(5)


class Mailbox(Protocol):
    """A one-reader queue that a thread of the engine waits on."""

    def put(self, item: Any) -> None: ...

    def get(self, until_ns: int | None = None) -> Any:
        """The next item; None when `until_ns` passes first."""
        ...


class Clock(Protocol):
    """`order` and `index` rank this waiter among those that wake at the same nanosecond (see ORDER_*)."""

    def now_ns(self) -> int: ...

    def mailbox(self, order: int, index: int) -> Mailbox: ...

    def sleep_until(self, ns: int, order: int, index: int) -> None: ...

    def start_thread(self, target: Callable[[], None], name: str) -> threading.Thread: ...

    def join(self, thread: threading.Thread, until_ns: int | None = None) -> bool:
        """Wait for the thread's end; False when `until_ns` passes first."""
        ...


class MonotonicClock:
    """Real time: the machine's monotonic clock."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def mailbox(self, order: int, index: int) -> Mailbox:
        return _QueueMailbox(poll_s=0.2 if order == ORDER_MAIN else None)

    def sleep_until(self, ns: int, order: int, index: int) -> None:
        left = ns - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)

    def start_thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        def run() -> None:
            tighten_timer_slack()
            target()

        thread = Thread(run, name)
        thread.start()
        return thread

    def join(self, thread: threading.Thread, until_ns: int | None = None) -> bool:
        thread.join(None if until_ns is None else max(until_ns - time.monotonic_ns(), 0) / 1e9)
        return not thread.is_alive()


class Thread(threading.Thread):
    """A daemon thread that is waited for to its end: an interrupt meanwhile is raised then, a second one at once.

    One that is inside ONNX Runtime when the interpreter ends aborts the process, in place of our exit code. A plain Thread is
    taken for ended by a second join() once the first was interrupted (CPython 3.11, _wait_for_tstate_lock).
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._over = threading.Event()

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._over.set()

    def join(self, timeout: float | None = None) -> None:
        try:
            self._over.wait(timeout)
        except KeyboardInterrupt:
            self._over.wait(timeout)
            raise
        super().join(timeout)


class _QueueMailbox:
    """`poll_s`: come up for air that often. The main thread must: an interrupt that arrives just before it blocks would else
    be seen only when it wakes.
    """

    def __init__(self, poll_s: float | None) -> None:
        self._poll_s = poll_s
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._queue.put

    def get(self, until_ns: int | None = None) -> Any:
        if until_ns is None:
            while True:
                try:
                    return self._queue.get(timeout=self._poll_s)
                except queue.Empty:
                    continue
        left = max(until_ns - time.monotonic_ns(), 0)
        try:
            return self._queue.get(timeout=left / 1e9)
        except queue.Empty:
            return None


def tighten_timer_slack() -> None:
    """Ask Linux not to batch this thread's timers (default slack 50 us). Measured: wake-ups late by p50 125 us become 75 us."""
    if sys.platform == "linux":
        PR_SET_TIMERSLACK = 29
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
