"""A worker: the thread of one processor. Takes a start, runs the subgraph, reports, goes on with what the scheduler says next."""

from __future__ import annotations

import threading

from edgeengine.clock import ORDER_START
from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import WORKER_PRIORITY, pin, real_time
from edgeengine.engine.dataflow import DataFlow
from edgeengine.engine.health import Health, Key, Samples, nan_in
from edgeengine.engine.runtime import STOP, Runtime
from edgeengine.engine.watchdog import Run, Watchdog
from edgeengine.errors import DeviceError, EdgeEngineError, UserError
from edgeengine.events import Failed, Finished, ProcessorBack, Start, Started
from edgeengine.scheduling.job import RANK, Job
from edgeengine.spec import Processor

BACKGROUND_RANK = RANK["background"]

Executables = dict[tuple[str, str], Executable]  # (task, subgraph) -> loaded on this worker's processor


class Worker:
    """Pinned to the processor's host core. Reports every failure of a provider or glue as a failed job and lives on.

    Faults of the processor in a row lose it (see Health), and so does a run that hangs (see Watchdog): it starts nothing, and the
    worker, once it is free, probes it until it is back.
    """

    def __init__(
        self, processor: Processor, index: int, runtime: Runtime, data: DataFlow, executables: Executables, samples: Samples,
        watchdog: Watchdog,
    ):  # fmt: skip
        self.processor, self._name = processor, processor.name
        self._runtime, self._data, self._executables = runtime, data, executables
        self._begin = {key: getattr(executable, "begin", None) for key, executable in executables.items()}
        self._health, self._samples, self._watchdog = Health(), samples, watchdog
        self._failed: dict[Key, Tensors] = {}  # inputs of the faults since the processor last ran well
        self.mailbox = runtime.clock.mailbox(ORDER_START, index)
        self.thread: threading.Thread | None = None
        self._real_time = False

    def start(self) -> None:
        self._runtime.workers[self._name] = self.mailbox
        self.thread = self._runtime.clock.start_thread(self._runtime.guard(self._loop), f"edgeengine {self._name}")

    def _loop(self) -> None:
        pin(self.processor.host_core)
        self._real_time = real_time(WORKER_PRIORITY)
        start: Start | None = None
        while True:
            if start is None:
                start = self.mailbox.get()
                if start is STOP:
                    return
            start = self._execute(start)
            if start is STOP:
                return

    def _execute(self, start: Start) -> Start | None:
        runtime, task, index, subgraph = self._runtime, start.task, start.index, start.subgraph
        runtime.step(lambda now: Started(now, task, index, subgraph, self._name))
        job = runtime.scheduler.job(task, index)
        tensors: Tensors | None = None
        watched, lost = self._watchdog.begin(self._name, task, index, subgraph), False
        try:
            try:
                tensors = self._data.tensors(job)
                outputs, duration_ns = self._run(job, (task, subgraph), tensors, watched)
            finally:
                if not self._watchdog.end(self._name):
                    raise _GivenUp from None
            last = job.move is not None and job.move.stop == job.task.segments
            if last and self._samples.check and not job.task.train:
                self._require_numbers(task, tensors, outputs)
            self._health.good_run()
            self._failed.clear()
            self._samples.keep((task, subgraph), tensors, outputs)
            tensors.update(outputs)
            if last and not job.cancelling:
                self._data.finish(task, index, tensors)
        except _GivenUp:
            if tensors is not None:  # else it was the source that hung
                self._failed[task, subgraph] = dict(tensors)
            return self._recover()
        except _CutShort as e:
            ns = e.duration_ns
            return runtime.step(lambda now: Finished(now, task, index, subgraph, self._name, "cancelled", ns), self._name)
        except _Fault as e:
            cause, lost = e.cause, self._health.fault(e.error)
            self._failed[task, subgraph] = dict(tensors or {})
        except EdgeEngineError as e:
            cause = str(e)
        except (Exception, SystemExit) as e:  # noqa: BLE001  a fault in someone's source or glue ends the job, never the worker
            cause = f"{type(e).__name__}: {e}"
        else:
            done = "done"
            return runtime.step(lambda now: Finished(now, task, index, subgraph, self._name, done, duration_ns), self._name)
        own = runtime.step(lambda now: Failed(now, task, index, subgraph, self._name, cause, lost), self._name)
        return self._recover() if lost else own

    def _run(self, job: Job, key: Key, tensors: Tensors, watched: Run) -> tuple[Tensors, int]:
        """The outputs, and the time it took. Raises _Fault for what the processor is to blame for, _CutShort if told to stop."""
        clock, begin, run = self._runtime.clock, self._begin[key], self._executables[key]
        if begin is not None:
            run = begin()
            watched.terminate = run.terminate
            if job.cancelling:  # since before that: whoever cancelled could not see this run
                run.terminate()
        patient = self._real_time and job.task.rank >= BACKGROUND_RANK
        if patient:  # background work must not hold a core against the rest of the system
            real_time(0)
        begun_ns = clock.now_ns()
        try:
            outputs = run.run(tensors)
        except UserError:
            raise
        except Exception as e:
            if begin is not None and job.cancelling:
                raise _CutShort(clock.now_ns() - begun_ns) from e
            raise _Fault(str(e) if isinstance(e, EdgeEngineError) else f"{type(e).__name__}: {e}", e) from e
        finally:
            duration_ns = clock.now_ns() - begun_ns
            if patient:
                real_time(WORKER_PRIORITY)
        return outputs, duration_ns

    def _require_numbers(self, task: str, tensors: Tensors, outputs: Tensors) -> None:
        """Raises where an output of the model holds NaN. The processor is blamed unless what it was given held NaN already."""
        names = self._data.tasks[task].outputs
        name = nan_in(outputs, names) or nan_in(tensors, names)
        if name is None:
            return
        given = nan_in(tensors, tensors)
        if given is not None:
            raise DeviceError(f"output {name!r} holds NaN, as did {given!r} before it")
        raise _Fault(f"output {name!r} holds NaN", None)

    def _recover(self) -> Start | None:
        """Probe the lost processor, outside the scheduler, until it does well; then serve on."""
        clock, health = self._runtime.clock, self._health
        while True:
            at_ns = clock.now_ns() + health.pause_ns
            while (item := self.mailbox.get(at_ns)) is not None:  # nothing but a STOP comes to a processor that is lost
                if item is STOP:
                    return item  # type: ignore[return-value]
            if self._real_time:
                real_time(0)
            self._watchdog.begin_probe(self._name)
            well = all(self._samples.probe(key, self._executables[key], fed) for key, fed in self._failed.items())
            well = self._watchdog.end(self._name) and well
            if self._real_time:
                real_time(WORKER_PRIORITY)
            if well:
                health.back()
                self._failed.clear()
                return self._runtime.step(lambda now: ProcessorBack(now, self._name), self._name)
            health.probe_failed()


class _Fault(Exception):
    """The processor is to blame. `error`: what it raised, if it did."""

    def __init__(self, cause: str, error: BaseException | None):
        super().__init__(cause)
        self.cause, self.error = cause, error


class _GivenUp(Exception):
    """The run came back after it was declared lost: its job has failed, its processor is quarantined."""


class _CutShort(Exception):
    def __init__(self, duration_ns: int):
        super().__init__(f"cut short after {duration_ns} ns")
        self.duration_ns = duration_ns
