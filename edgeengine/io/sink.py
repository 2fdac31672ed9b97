"""Where results go: a function of the app, an actuator on a serial line. Whoever submits is never kept waiting."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from edgeengine.errors import UserError
from edgeengine.io.serial_line import SerialLine


class Sink(Protocol):
    """Takes the results of a task. The engine opens it when it is entered and closes it when it ends."""

    def open(self) -> None: ...

    def submit(self, item: Any) -> None:
        """Called on a worker, for each job that ended: must return at once."""
        ...

    def close(self) -> None:
        """Take nothing more. Does nothing a second time."""
        ...


class _Queued(ABC):
    """Items wait in a bounded queue for the sink's own thread. When it is full the oldest goes: for whoever acts on results,
    the newest counts. `delivered`, `dropped` (full queue) and `failed` count items; `fault` is the latest failure.
    """

    def __init__(self, name: str, waiting: int):
        if waiting < 1:
            raise UserError(f"{name}: at least one item must be able to wait, not {waiting}")
        self._name = name
        self._waiting: deque[Any] = deque(maxlen=waiting)
        self._changed = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self.delivered = self.dropped = self.failed = 0
        self.fault: Exception | None = None

    def open(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"edgeengine {self._name}", daemon=True)
        self._thread.start()

    def submit(self, item: Any) -> None:
        with self._changed:
            if self._closing:
                return
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(item)
            self._changed.notify()

    def close(self) -> None:
        """What waits is still delivered, up to the first failure."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                item = self._waiting.popleft()
            try:
                self._deliver(item)
            except Exception as e:  # noqa: BLE001  a fault in someone's function or a port that is away: counted, and the next is tried
                self.failed, self.fault = self.failed + 1, e
                if self._closing:
                    self.failed += len(self._waiting)
                    self._waiting.clear()
            else:
                self.delivered += 1

    @abstractmethod
    def _deliver(self, item: Any) -> None: ...


class CallbackSink(_Queued):
    """Calls `function(item)` on a thread of its own, in order."""

    def __init__(self, function: Callable[[Any], object], waiting: int = 64):
        super().__init__("callback sink", waiting)
        self._function = function

    def _deliver(self, item: Any) -> None:
        self._function(item)


class SerialSink(_Queued):
    """Writes `encode(item)` to a serial line; an item it makes None of is left out. The line may be a sensor's as well.

    A write fails while the port is away, or when nobody takes the bytes for 0.2 s: a message may then have left in part, so the
    format should let the receiver find the next one.
    """

    def __init__(self, line: SerialLine, encode: Callable[[Any], bytes | None], waiting: int = 16):
        super().__init__(f"serial sink {line.port}", waiting)
        self._line, self._encode = line, encode

    def open(self) -> None:
        """Raises DeviceError when the port cannot be opened."""
        self._line.open()
        super().open()

    def close(self) -> None:
        super().close()
        self._line.close()

    def _deliver(self, item: Any) -> None:
        data = self._encode(item)
        if data is not None:
            self._line.write(data)
