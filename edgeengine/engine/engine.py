"""The engine that apps embed: load everything first, then serve jobs under deadlines until told to stop."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.clock import ORDER_MAIN, Clock, MonotonicClock
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.engine.dataflow import DataFlow, JobData
from edgeengine.engine.health import Samples
from edgeengine.engine.learning import (
    PUBLISH,
    Training,
    find_trainings,
    load_training,
    serve_versions,
    trains,
    with_publishing,
)
from edgeengine.engine.learns import Learns
from edgeengine.engine.loading import load_executables, open_bundles, open_sources
from edgeengine.engine.priming import prime_windows
from edgeengine.engine.result import JobFuture, JobResult, ResultStream
from edgeengine.engine.runtime import STOP, Runtime
from edgeengine.engine.timer import Timer
from edgeengine.engine.watchdog import CHECK_NS, Watchdog
from edgeengine.engine.worker import Worker
from edgeengine.errors import InternalError, UserError
from edgeengine.events import Cancelled, LogLine, Released
from edgeengine.io import Sink, Source, opened
from edgeengine.planning import load_plan
from edgeengine.scheduling import Job, Policy, Scheduler, make_policy
from edgeengine.scheduling.drift import Drift
from edgeengine.spec import Plan
from edgeengine.training.learner import Settings
from edgeengine.workload import Releases, Workload, load_workload

LEAD_NS = 5_000_000  # between the start of the threads and the first release
SWITCH_INTERVAL_S = 0.0002  # a busy Python thread then delays a hand-off by 0.3 ms instead of 10 ms (p90, measured)


class Engine(Learns):
    """Runs the tasks of a workload as planned.

        with Engine("workload.toml", "plan.json") as engine:
            future = engine.submit("detect", {"x": image})
            print(future.result().outcome)

    Entering loads every subgraph, primes windows and starts the workers and the periodic releases; leaving cancels what waits,
    lets what runs end, and joins the workers.

    Args:
        workload, plan: what to run and how, as objects or files; the plan must name the workload's tasks.
        policy: a policy name or object.
        seconds: periodic tasks release jobs for this long (None: until the engine closes); see `wait`.
        bundles: opened bundles by task, for tasks whose `model` is not a bundle folder.
        sources: sources for `inputs = "source:NAME"`, by NAME.
        sinks: where the JobResult of each ended job of a task goes, by task. Sources and sinks that hold something open are
            opened on entering and closed at the end.
        state: a folder to learn in; without one, training tasks of bundles do nothing. `learning`: how, by training task.
        clock, providers: replaced in tests.
        check_outputs: a job whose outputs hold NaN fails (training excepted). False for models that mean it.
        hang_s: a run is given up once it takes longer than this and than ten times its p99; see `abandoned`.
        keep_jobs, keep_log: keep ended jobs in `jobs`, scheduler steps in `log`. They grow with the run.

    Raises UserError for a workload that cannot run here, DeviceError when a subgraph cannot be loaded.
    """

    def __init__(
        self,
        workload: Workload | str | Path,
        plan: Plan | str | Path,
        *,
        policy: str | Policy = "edf",
        seconds: float | None = None,
        seed: int = 0,
        bundles: dict[str, Bundle] | None = None,
        sources: dict[str, Source] | None = None,
        sinks: dict[str, Sink] | None = None,
        state: Path | None = None,
        learning: dict[str, Settings] | None = None,
        clock: Clock | None = None,
        providers: dict[str, Provider] | None = None,
        check_outputs: bool = True,
        hang_s: float = 1.0,
        keep_jobs: bool = False,
        keep_log: bool = False,
    ):
        workload = workload if isinstance(workload, Workload) else load_workload(workload)
        plan = plan if isinstance(plan, Plan) else load_plan(plan)
        self._workload, self._plan = workload, plan
        self._clock: Clock = clock or MonotonicClock()
        self._providers = providers if providers is not None else load_providers()
        opened_bundles = open_bundles(workload, plan, bundles or {})
        trainings = find_trainings(workload, opened_bundles, state, learning or {})
        idle = {t.name for t in workload.tasks if t.is_training and trains(opened_bundles[t.name])} - trainings.keys()
        workload = with_publishing(workload, trainings)
        # Training reads the sample store, not a source.
        serving = {n: b for n, b in opened_bundles.items() if n not in idle and _of(trainings, n) is None}
        super().__init__(trainings, serving, state)
        fed = {t.name: self._bundles.get(t.name) for t in workload.tasks}
        self._data = DataFlow(workload, fed, open_sources(workload, fed, sources or {}))
        self._sinks = dict(sinks or {})
        for name in self._sinks:
            if name not in self._data.tasks:
                raise UserError(f"Engine: sinks names no task {name!r}; known: {', '.join(self._data.tasks)}")
        self._ends = ExitStack()  # of sources and sinks
        self.log: list[LogLine] = []
        scheduler = Scheduler(
            workload, plan, make_policy(policy) if isinstance(policy, str) else policy,
            seed=seed, record=self.log.append if keep_log else None,
        )  # fmt: skip
        if seconds is not None and (not isinstance(seconds, int | float) or not 0 < seconds < 1e9):
            raise UserError(f"Engine: seconds must be a positive number, not {seconds!r}")
        if not isinstance(hang_s, int | float) or not 0 < hang_s < 1e9:
            raise UserError(f"Engine: hang_s must be a positive number, not {hang_s!r}")
        stop_ns = None if seconds is None else round(seconds * 1e9)
        self._runtime = Runtime(scheduler, Drift(plan), self._clock, stop_ns, self._ended, self._tell_waiting)
        self._runtime.has_work = lambda task: task not in idle and _has_work(_of(self._trainings, task), task)
        self._watchdog = Watchdog(self._runtime, plan, round(hang_s * 1e9))
        self._runtime.cut_short = self._watchdog.cut_short
        self._timer = Timer(self._runtime, Releases(workload, stop_ns, seed), self._watchdog)
        self._workers: list[Worker] = []
        self._callbacks: ThreadPoolExecutor | None = None
        self._streams: dict[str, ResultStream] = {}
        self._next_index: dict[str, int] = {}
        self._patterned = {t.name for t in workload.tasks if t.has_pattern or t.after is not None or t.is_training}
        self._quiet = ExitStack()
        self._entered = False
        self._running = self._closed = False
        self._keep_jobs = keep_jobs
        self._samples = Samples(check_outputs)
        self.jobs: list[Job] = []
        self.abandoned: tuple[str, ...] = ()

    # ---- life ----

    def __enter__(self) -> Engine:
        if self._entered:
            raise UserError("this engine was started before; make a new one")
        self._entered = True
        try:
            self._start()
        except BaseException:  # an interrupt too must leave no thread behind
            self.close()
            raise
        return self

    def _start(self) -> None:
        executables = load_executables(self._plan, self._bundles, self._providers)
        serve_versions(self._plan, self._bundles, self._trainings, executables)
        load_training(self._plan, self._trainings, executables)
        self._ends.enter_context(opened([*self._data.sources(), *self._sinks.values()]))
        prime_windows(self._workload, self._plan, self._data, executables)
        for index, processor in enumerate(self._plan.processors):
            if processor.name in executables:
                loaded = executables[processor.name]
                worker = Worker(processor, index, self._runtime, self._data, loaded, self._samples, self._watchdog)
                self._workers.append(worker)
        # Its thread is born here, not on a pinned real-time worker, which it would take after.
        self._callbacks = ThreadPoolExecutor(1, "edgeengine callbacks")
        self._callbacks.submit(int)
        self._quiet.enter_context(_quiet_interpreter())
        self._runtime.epoch_ns = self._clock.now_ns() + LEAD_NS
        for worker in self._workers:
            worker.start()
        self._timer.start()
        self._clock.sleep_until(self._runtime.epoch_ns, ORDER_MAIN, 1)  # nothing is submitted before time 0
        self._running = True

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel all jobs, let their runs end (cut short where that can be done), join all threads. Twice does no more.

        Bounded: a run that does not return in its time is given up; its processor is in `abandoned`, its thread (a daemon) and
        what its provider has loaded are left behind.
        """
        if self._closed:
            return
        self._running = False
        self._timer.mailbox.put(STOP)
        if self._timer.thread is not None:
            self._clock.join(self._timer.thread)
        try:
            self._runtime.close()
        finally:
            for worker in self._workers:
                worker.mailbox.put(STOP)
            left = [w.processor for w in self._workers if not self._join(w)]
            self.abandoned = tuple(p.name for p in left)
            self._closed = True
            if self._callbacks is not None:
                self._callbacks.shutdown()
            for stream in self._streams.values():
                stream.close()
            self._quiet.close()
            self._ends.close()
            for training in self._trainings.values():
                training.learner.close()
            in_use = {p.provider for p in left}
            for name, provider in self._providers.items():
                if name not in in_use:
                    provider.close()

    def _join(self, worker: Worker) -> bool:
        """False for a worker that does not come back: its run, if that is why, is given up."""
        if worker.thread is None:
            return True
        name = worker.processor.name
        if self._clock.join(worker.thread, self._runtime.epoch_ns + self._watchdog.until_ns(name)):
            return True
        self._watchdog.give_up(name)
        return self._clock.join(worker.thread, self._clock.now_ns() + CHECK_NS)

    def wait(self) -> None:
        """Block until the last job of a run of `seconds` has ended. Returns at once in a second call."""
        if self._runtime.stop_ns is None:
            raise UserError("wait: this engine runs until it is closed; give Engine(…, seconds=…) to wait for an end")
        if not self._running:
            raise UserError("wait: the engine is not running; use it as 'with Engine(…) as engine:'")
        self._runtime.drained.get()
        self._runtime.drained.put(True)
        self._check()

    # ---- use ----

    def submit(self, task: str, inputs: dict[str, np.ndarray] | None = None, *, deadline_ms: float | None = None) -> JobFuture:
        """Release one job of `task` now.

        Args:
            inputs: one array per model input that is not carried or fed; copied, so the caller may reuse them.
            deadline_ms: relative deadline of this job; default: the task's.

        Raises UserError for an unknown task, one that releases its own jobs, or inputs that do not fit the model.
        """
        if task not in self._data.tasks:
            raise UserError(f"submit: no task {task!r}; known: {', '.join(self._data.tasks)}")
        if task in self._patterned:
            raise UserError(f"submit: task {task!r} releases its own jobs; leave out its pattern in the workload to submit them")
        if not self._running:
            raise UserError("submit: the engine is not running; use it as 'with Engine(…) as engine:'")
        self._check()
        if deadline_ms is not None and (not isinstance(deadline_ms, int | float) or not 0 < deadline_ms < 1e12):
            raise UserError(f"submit: deadline_ms must be a positive number, not {deadline_ms!r}")
        given = self._data.check(task, inputs or {})
        index = -1

        def release(now: int) -> Released:
            nonlocal index
            if self._runtime.closing:
                raise UserError("submit: the engine was closed meanwhile")
            index = self._next_index.get(task, 0)
            self._next_index[task] = index + 1
            self._data.given[task, index] = data
            return Released(now, task, index, now, None if deadline_ms is None else now + round(deadline_ms * 1e6))

        future = JobFuture(lambda: self._cancel(task, index), self._call_back)
        data = JobData(given, future)

        self._runtime.step(release)
        return future

    def results(self, task: str) -> ResultStream:
        """The results of `task` from now on, in order of end; read it on a thread of yours. All callers share one stream."""
        if task not in self._data.tasks:
            raise UserError(f"results: no task {task!r}; known: {', '.join(self._data.tasks)}")
        return self._streams.setdefault(task, ResultStream())

    @property
    def released(self) -> dict[str, int]:
        """Jobs released so far, by task."""
        return self._runtime.scheduler.released

    # ---- inside ----

    def _check(self) -> None:
        """Raises what ended one of our threads."""
        failure = self._runtime.failure
        if failure is not None:
            raise InternalError(f"the engine stopped: {failure}") from failure

    def _tell_waiting(self) -> None:
        """The scheduler failed: whoever waits for a job learns it."""
        for job in self._runtime.scheduler.alive():
            future = self._data.of(job).future
            if future is not None and not future.done():
                future.set_exception(InternalError(f"the engine stopped: {self._runtime.failure}"))

    def _cancel(self, task: str, index: int) -> None:
        self._runtime.step(lambda now: Cancelled(now, task, index))

    def _call_back(self, code: Callable[[], Any]) -> None:
        """On the callback thread; on the caller's when the engine is closed and has none any more."""
        if self._closed or self._callbacks is None:
            code()
        else:
            self._callbacks.submit(code)

    def _ended(self, job: Job) -> None:
        """A job ended (called by whoever stepped, outside the lock): hand its result on, let its tensors go."""
        stream, sink = self._streams.get(job.task.name), self._sinks.get(job.task.name)
        future = self._data.of(job).future
        if stream is not None or sink is not None or future is not None:
            result = JobResult.of(job, self._data.outputs(job), self._data.of(job).version)
            if sink is not None:
                sink.submit(result)
            if stream is not None:
                stream.put(result)
            if future is not None:
                future.set_result(result)
        watch = self._drift_watch
        if watch is not None and job.finished and not job.task.train:
            tensors, outputs = dict(self._data.of(job).tensors or {}), self._data.outputs(job)
            self._call_back(lambda: watch.saw(job.task.name, tensors, outputs))
        self._data.forget(job)
        if self._keep_jobs:
            self.jobs.append(job)


def _of(trainings: Mapping[str, Training], task: str) -> Training | None:
    """The training that `task` is part of."""
    return trainings.get(task.removesuffix(PUBLISH))


def _has_work(training: Training | None, task: str) -> bool:
    return training is None or training.ready(task)


_quieted: list[float] = []  # one entry per engine that serves: the switch interval it found


@contextmanager
def _quiet_interpreter() -> Iterator[None]:
    """While any engine serves: short switch interval, and start-up objects out of the garbage collector's way."""
    _quieted.append(sys.getswitchinterval())
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        found = _quieted.pop()
        if not _quieted:
            gc.unfreeze()
            sys.setswitchinterval(found)
        else:  # engines may close in any order: the first's interval is the one to come back to
            _quieted[0] = max(_quieted[0], found)
