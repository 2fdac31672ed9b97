"""A virtual clock for real threads: one runs at a time, and time jumps to the next thing that happens.

The live engine runs on it unchanged and deterministically. Threads wake in the order of a discrete-event simulator: by time,
then clock.ORDER_*, then index, then first come, first served.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

from edgeengine.clock import ORDER_MAIN
from edgeengine.errors import InternalError

ORDER_NEW_THREAD = -1


class _Waiter:
    """One blocking call. It wakes once; other entries for it in the heap are then stale."""

    __slots__ = ("awake", "go")

    def __init__(self) -> None:
        self.go = threading.Event()
        self.awake = False


class VirtualClock:
    """The creating thread runs first; every other thread must come from `start_thread` and wait only through this clock."""

    def __init__(self) -> None:
        self._now = 0
        self._lock = threading.Lock()
        self._heap: list[tuple[int, int, int, int, _Waiter]] = []
        self._seq = count()
        self._finished: dict[threading.Thread, list[_Waiter]] = {}
        self._done: set[threading.Thread] = set()

    def now_ns(self) -> int:
        return self._now

    def sleep_until(self, ns: int, order: int, index: int) -> None:
        waiter = _Waiter()
        with self._lock:
            self._push(max(ns, self._now), order, index, waiter)
            self._wake_next()
        waiter.go.wait()

    def mailbox(self, order: int, index: int) -> _VirtualMailbox:
        return _VirtualMailbox(self, order, index)

    def start_thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        waiter = _Waiter()

        def run() -> None:
            waiter.go.wait()
            try:
                target()
            finally:
                with self._lock:
                    self._done.add(thread)
                    for joiner in self._finished.pop(thread, []):
                        self._push(self._now, ORDER_MAIN, 0, joiner)
                    self._wake_next(may_idle=True)

        thread = threading.Thread(target=run, name=name, daemon=True)
        with self._lock:
            self._push(self._now, ORDER_NEW_THREAD, 0, waiter)
        thread.start()
        return thread

    def join(self, thread: threading.Thread, until_ns: int | None = None) -> bool:
        waiter = _Waiter()
        with self._lock:
            if thread in self._done:
                return True
            self._finished.setdefault(thread, []).append(waiter)
            if until_ns is not None:
                self._push(max(until_ns, self._now), ORDER_MAIN, 0, waiter)
            self._wake_next()
        waiter.go.wait()
        if thread not in self._done:
            return False
        thread.join()
        return True

    def _push(self, at_ns: int, order: int, index: int, waiter: _Waiter) -> None:
        heapq.heappush(self._heap, (at_ns, order, index, next(self._seq), waiter))

    def _wake_next(self, may_idle: bool = False) -> None:
        """The calling thread is about to block (or end): let the next one run."""
        while self._heap:
            at_ns, _, _, _, waiter = heapq.heappop(self._heap)
            if not waiter.awake:
                self._now = max(self._now, at_ns)
                waiter.awake = True
                waiter.go.set()
                return
        if not may_idle:
            raise InternalError("virtual clock: every thread waits for another, and none for time")


class _VirtualMailbox:
    def __init__(self, clock: VirtualClock, order: int, index: int):
        self._clock, self._order, self._index = clock, order, index
        self._items: deque[Any] = deque()
        self._waiter: _Waiter | None = None

    def put(self, item: Any) -> None:
        clock = self._clock
        with clock._lock:
            self._items.append(item)
            if self._waiter is not None and not self._waiter.awake:
                clock._push(clock._now, self._order, self._index, self._waiter)

    def get(self, until_ns: int | None = None) -> Any:
        clock = self._clock
        with clock._lock:
            if self._items:
                return self._items.popleft()
            if until_ns is not None and until_ns <= clock._now:
                return None
            waiter = self._waiter = _Waiter()
            if until_ns is not None:
                clock._push(until_ns, self._order, self._index, waiter)
            clock._wake_next()
        waiter.go.wait()
        return self._items.popleft() if self._items else None
