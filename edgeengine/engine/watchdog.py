"""Runs that never end: what runs where, until when it should have ended, and what is done once it has not.

A run over its bound is declared lost: it is told to stop, its job fails, its processor starts nothing more, and the rest go on.
Its worker comes back only if the run returns after all; it is then probed as after any loss (see worker). The timer looks at
what runs every CHECK_NS while anything does: nothing is added to a run but a note of its beginning and end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgeengine.engine.runtime import Runtime
from edgeengine.events import Failed
from edgeengine.spec import Plan

CHECK_NS = 250_000_000
P99_FACTOR = 10  # beyond any tail that a p99 of a few dozen samples leaves open
FIRST_RUN_NS = 30_000_000_000  # what the first run of a subgraph on a processor may take: providers compile there
LOOK = object()  # to the timer: something runs

Key = tuple[str, str, str]  # task, subgraph, processor


class Run:
    """One run under way. `until_ns`: lost after this. `terminate` cuts it short; None where that cannot be done."""

    __slots__ = ("index", "late", "subgraph", "task", "terminate", "until_ns")

    def __init__(self, task: str, index: int, subgraph: str, until_ns: int):
        self.task, self.index, self.subgraph, self.until_ns = task, index, subgraph, until_ns
        self.terminate: Callable[[], None] | None = None
        self.late = False


class Watchdog:
    """`next_ns`: when to look again, None while nothing runs. `lost`: processors that have not returned, and why."""

    def __init__(self, runtime: Runtime, plan: Plan, least_ns: int):
        self._runtime, self._least_ns = runtime, least_ns
        self._bounds: Mapping[Key, int] = {
            (t.task, s.subgraph, s.processor): max(P99_FACTOR * s.latency.p99_ns, least_ns) for t in plan.tasks for s in t.steps
        }
        self._begun: set[Key] = set()
        self._runs: dict[str, Run] = {}  # by processor. Who takes a run out says how it ended: its worker, or whoever gave it up
        self.next_ns: int | None = None
        self.lost: dict[str, str] = {}

    def begin(self, processor: str, task: str, index: int, subgraph: str) -> Run:
        """The processor's worker begins a run."""
        key = (task, subgraph, processor)
        bound = self._bounds[key] if key in self._begun else max(self._bounds[key], FIRST_RUN_NS)
        self._begun.add(key)
        return self._note(processor, Run(task, index, subgraph, self._runtime.now() + bound))

    def begin_probe(self, processor: str) -> Run:
        """As begin, outside the scheduler."""
        return self._note(processor, Run("", 0, "", self._runtime.now() + max(self._least_ns, FIRST_RUN_NS)))

    def _note(self, processor: str, run: Run) -> Run:
        self._runs[processor] = run
        if self.next_ns is None:
            self.next_ns = self._runtime.now() + CHECK_NS
            assert self._runtime.timer is not None
            self._runtime.timer.put(LOOK)
        return run

    def end(self, processor: str) -> bool:
        """The worker's run returned or raised. False if it was given up meanwhile: the worker then reports nothing."""
        self.lost.pop(processor, None)
        return self._runs.pop(processor, None) is not None

    def until_ns(self, processor: str) -> int:
        """When the processor's run, if there is one, should have ended at the latest; else by the least bound from now."""
        run = self._runs.get(processor)
        return run.until_ns if run is not None else self._runtime.now() + self._least_ns

    def cut_short(self, task: str, index: int) -> None:
        """A run not here yet sees for itself that its job is being cancelled; one that cannot be cut short ends by itself."""
        for run in list(self._runs.values()):
            if (run.task, run.index) == (task, index) and run.terminate is not None:
                run.terminate()

    def check(self, now: int) -> None:
        """Give up what is over its bound for the second time: after the machine slept, runs get a chance to return."""
        self.next_ns = None  # before looking: a run that begins meanwhile asks for a look itself
        for processor, run in list(self._runs.items()):
            if now > run.until_ns and run.late:
                self.give_up(processor)
            run.late = now > run.until_ns
        if self._runs:
            self.next_ns = now + CHECK_NS

    def give_up(self, processor: str) -> None:
        """Declare the processor's run lost, if it has not returned."""
        run = self._runs.pop(processor, None)
        if run is None:
            return
        cause = self.lost[processor] = "hang: it did not return in time"
        if run.terminate is not None:
            run.terminate()
        if run.task and self._runtime.failure is None:
            self._runtime.step(lambda now: Failed(now, run.task, run.index, run.subgraph, processor, cause, lost=True))
