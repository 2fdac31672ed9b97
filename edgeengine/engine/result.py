"""What a caller gets back for a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import numpy as np

from edgeengine.scheduling import Job


class JobResult(msgspec.Struct, frozen=True):
    """How a job ended. `outcome` is met | late | dropped | failed | rejected; `cause` says why unless it was met.

    `outputs` holds the model's outputs by name, empty unless the job finished (met or late). Times are nanoseconds
    since the engine started; `start_ns` is None if no subgraph of it began, `deadline_ns` is None where there is none.
    `version` names the learned weights that made the outputs, "" for the bundle's own.
    """

    task: str
    index: int
    outcome: str
    cause: str
    outputs: dict[str, np.ndarray]
    release_ns: int
    start_ns: int | None
    finish_ns: int
    deadline_ns: int | None
    version: str = ""

    @classmethod
    def of(cls, job: Job, outputs: dict[str, np.ndarray], version: str = "") -> JobResult:
        assert job.finish_ns is not None
        return cls(
            job.task.name, job.index, job.outcome, job.cause, outputs, job.release_ns, job.start_ns, job.finish_ns,
            job.deadline_ns, version,
        )  # fmt: skip

    @property
    def latency_ms(self) -> float:
        """Finish - release."""
        return (self.finish_ns - self.release_ns) / 1e6


class JobFuture(Future[JobResult]):
    """A standard future. `result()` gives the JobResult however the job ended; `cancel()` asks the scheduler to drop it.

    Callbacks run on a thread of their own, never on a worker, where they would delay the next subgraph.
    """

    def __init__(self, cancel: Callable[[], None], call: Callable[[Callable[[], Any]], None]):
        super().__init__()
        self._ask_cancel, self._call = cancel, call

    def cancel(self) -> bool:
        """Ask for cancellation. The future still ends with a result: `dropped`, or what it became before that."""
        if self.done():
            return False
        self._ask_cancel()
        return True

    def add_done_callback(self, fn: Callable[[Future[JobResult]], Any]) -> None:
        super().add_done_callback(lambda future: self._call(lambda: fn(future)))


class ResultStream:
    """Results as they come: `for result in stream`, which ends when the engine closes, or `get`.

    Holds everything until it is read; read it, or do not ask for it.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[JobResult | None] = SimpleQueue()
        self._closed = False

    def put(self, result: JobResult) -> None:
        self._queue.put(result)

    def get(self, timeout: float | None = None) -> JobResult:
        """The next result. Raises queue.Empty when none came within `timeout` seconds, or none will come any more."""
        if self._closed and self._queue.empty():
            raise Empty
        result = self._queue.get(timeout=timeout)
        if result is None:
            self._queue.put(None)  # for other readers
            raise Empty
        return result

    def qsize(self) -> int:
        """How many can be read without waiting."""
        return self._queue.qsize() - self._closed

    def close(self) -> None:
        """No more results will come."""
        self._closed = True
        self._queue.put(None)

    def __iter__(self) -> Iterator[JobResult]:
        while True:
            try:
                yield self.get()
            except Empty:
                return
