"""The peer of every live measurement: two threads and a queue, nothing else. Python cannot hand over work faster.

The reader is a thread like the engine's workers: same core, priority and timer slack.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from time import monotonic_ns
from types import TracebackType

from edgeengine.clock import tighten_timer_slack
from edgeengine.devices.threads import WORKER_PRIORITY, pin, real_time


class BareQueue:
    """`exchange` puts an item to a sleeping reader, who puts back when it woke."""

    def __init__(self, core: int | None):
        self._core = core
        self._there: SimpleQueue[int | None] = SimpleQueue()
        self._back: SimpleQueue[int] = SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="bare queue", daemon=True)

    def __enter__(self) -> BareQueue:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._there.put(None)
        self._thread.join()

    def exchange(self) -> tuple[int, int]:
        """Nanoseconds from just before put to the reader's next line, and to our own next line after its answer."""
        sent_ns = monotonic_ns()
        self._there.put(sent_ns)
        woke_ns = self._back.get()
        done_ns = monotonic_ns()
        return woke_ns - sent_ns, done_ns - sent_ns

    def _read(self) -> None:
        tighten_timer_slack()
        pin(self._core)
        real_time(WORKER_PRIORITY)
        while self._there.get() is not None:
            self._back.put(monotonic_ns())
