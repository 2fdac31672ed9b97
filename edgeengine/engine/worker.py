"""A worker: the thread of one processor. Takes a start, runs the subgraph, reports, goes on with what the scheduler says next."""

from __future__ import annotations

import threading

from edgeengine.clock import ORDER_START
from edgeengine.devices.pinning import pin
from edgeengine.devices.providers import Executable
from edgeengine.engine.dataflow import DataFlow
from edgeengine.engine.runtime import STOP, Runtime
from edgeengine.errors import EdgeEngineError
from edgeengine.events import Failed, Finished, Start, Started
from edgeengine.spec import Processor

Executables = dict[tuple[str, str], Executable]  # (task, subgraph) -> loaded on this worker's processor


class Worker:
    """Pinned to the processor's host core. Reports every failure of a provider or glue as a failed job and lives on."""

    def __init__(self, processor: Processor, index: int, runtime: Runtime, data: DataFlow, executables: Executables):
        self._processor, self._name = processor, processor.name
        self._runtime, self._data, self._executables = runtime, data, executables
        self.mailbox = runtime.clock.mailbox(ORDER_START, index)
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        self._runtime.workers[self._name] = self.mailbox
        self.thread = self._runtime.clock.start_thread(self._loop, f"edgeengine {self._name}")

    def _loop(self) -> None:
        pin(self._processor.host_core)
        start: Start | None = None
        while True:
            if start is None:
                start = self.mailbox.get()
                if start is STOP:
                    return
            start = self._execute(start)

    def _execute(self, start: Start) -> Start | None:
        runtime, task, index = self._runtime, start.task, start.index
        runtime.step(lambda now: Started(now, task, index, self._name))
        job = runtime.scheduler.job(task, index)
        clock = runtime.clock
        begun_ns = clock.now_ns()
        try:
            tensors = self._data.tensors(job)
            begun_ns = clock.now_ns()
            tensors.update(self._executables[task, start.subgraph].run(tensors))
            duration_ns = clock.now_ns() - begun_ns
            if job.move is not None and job.move.stop == job.task.segments:
                self._data.finish(task, index, tensors)
        except EdgeEngineError as e:
            cause = str(e)
        except Exception as e:  # noqa: BLE001  a fault in someone's source or glue ends the job, never the worker
            cause = f"{type(e).__name__}: {e}"
        else:
            return runtime.step(lambda now: Finished(now, task, index, self._name, "done", duration_ns), self._name)
        return runtime.step(lambda now: Failed(now, task, index, self._name, cause), self._name)
