"""A worker: the thread of one processor. Takes a start, runs the subgraph, reports, goes on with what the scheduler says next."""

from __future__ import annotations

import threading

from edgeengine.clock import ORDER_START
from edgeengine.devices.providers import Executable
from edgeengine.devices.threads import WORKER_PRIORITY, pin, real_time
from edgeengine.engine.dataflow import DataFlow
from edgeengine.engine.runtime import STOP, Runtime
from edgeengine.errors import EdgeEngineError
from edgeengine.events import Failed, Finished, Start, Started
from edgeengine.scheduling.job import RANK
from edgeengine.spec import Processor

BACKGROUND_RANK = RANK["background"]

Executables = dict[tuple[str, str], Executable]  # (task, subgraph) -> loaded on this worker's processor


class Worker:
    """Pinned to the processor's host core. Reports every failure of a provider or glue as a failed job and lives on."""

    def __init__(self, processor: Processor, index: int, runtime: Runtime, data: DataFlow, executables: Executables):
        self._processor, self._name = processor, processor.name
        self._runtime, self._data, self._executables = runtime, data, executables
        self.mailbox = runtime.clock.mailbox(ORDER_START, index)
        self.thread: threading.Thread | None = None
        self._real_time = False

    def start(self) -> None:
        self._runtime.workers[self._name] = self.mailbox
        self.thread = self._runtime.clock.start_thread(self._runtime.guard(self._loop), f"edgeengine {self._name}")

    def _loop(self) -> None:
        pin(self._processor.host_core)
        self._real_time = real_time(WORKER_PRIORITY)
        start: Start | None = None
        while True:
            if start is None:
                start = self.mailbox.get()
                if start is STOP:
                    return
            start = self._execute(start)

    def _execute(self, start: Start) -> Start | None:
        runtime, task, index, subgraph = self._runtime, start.task, start.index, start.subgraph
        runtime.step(lambda now: Started(now, task, index, subgraph, self._name))
        job = runtime.scheduler.job(task, index)
        clock = runtime.clock
        try:
            tensors = self._data.tensors(job)
            executable = self._executables[task, subgraph]
            patient = self._real_time and job.task.rank >= BACKGROUND_RANK
            if patient:  # background work must not hold a core against the rest of the system
                real_time(0)
            begun_ns = clock.now_ns()
            try:
                tensors.update(executable.run(tensors))
            finally:
                duration_ns = clock.now_ns() - begun_ns
                if patient:
                    real_time(WORKER_PRIORITY)
            if job.move is not None and job.move.stop == job.task.segments and not job.cancelling:
                self._data.finish(task, index, tensors)
        except EdgeEngineError as e:
            cause = str(e)
        except (Exception, SystemExit) as e:  # noqa: BLE001  a fault in someone's source or glue ends the job, never the worker
            cause = f"{type(e).__name__}: {e}"
        else:
            done = "done"
            return runtime.step(lambda now: Finished(now, task, index, subgraph, self._name, done, duration_ns), self._name)
        return runtime.step(lambda now: Failed(now, task, index, subgraph, self._name, cause), self._name)
