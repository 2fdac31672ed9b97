"""Back to back: the latency of a subgraph run again and again, candidates interleaved so that drift hits all alike.

Per-node profiling is off: it slows small models twentyfold (see docs/design.md). Rounds go on until the median of every candidate
is known to within a stated width, or time is up; the candidates of one subgraph stop together, so that what is compared was
measured over the same stretch of time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import groupby

from edgeengine.clock import Clock, MonotonicClock
from edgeengine.devices.providers import Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import run_pinned
from edgeengine.profiling.candidate import Candidate
from edgeengine.profiling.interval import LEAST
from edgeengine.profiling.isolated import Isolated, isolated
from edgeengine.profiling.series import Series
from edgeengine.spec import ProfileRow

BACK_TO_BACK = "back_to_back"
WIDTH = 0.02  # of the median: half its 95 % confidence interval
MIN_ROUNDS = LEAST  # fewer have no interval
OVERTIME = 3  # times the budget that is taken for MIN_ROUNDS; one round is made whatever it takes
LONG = 20  # a run longer than the budget over this is measured one at a time

Progress = Callable[[str, float], None]  # what is being done, share done (0..1)
Keep = Callable[[ProfileRow], None]


def measure_back_to_back(
    candidates: Sequence[Candidate],
    tensors: dict[str, Tensors],
    providers: dict[str, Provider],
    device: str,
    *,
    budget_s: float,
    width: float = WIDTH,
    isolate: bool = False,
    clock: Clock | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
) -> list[ProfileRow]:
    """Measure until half the 95 % confidence interval of each median is at most `width` of it, or `budget_s` is over.

    `tensors` holds the chain's tensors by bundle hash, with the reference of the outputs (`reference_tensors`). Rows come in
    the order of `candidates`; `keep` gets each as soon as it is complete. What cannot be loaded or run has a row that says why.
    `isolate`: each session is first made in a process of its own, which tells its memory, and whose crash is only its own.
    When interrupted, what has enough rounds is kept, and KeyboardInterrupt goes on.
    """
    clock = clock or MonotonicClock()
    series = [Series(c, tensors[c.bundle.hash], clock) for c in candidates]
    measuring = _Measuring(series, device, round(budget_s * 1e9), width, clock, progress, keep)
    try:
        measuring.load(providers, isolated(candidates, tensors) if isolate else None)
        measuring.rounds()
    except KeyboardInterrupt:
        measuring.end([s for s in series if len(s.medians) >= MIN_ROUNDS], "interrupted")
        raise
    measuring.end(series, "budget")
    return [measuring.rows[id(s)] for s in series]


class _Measuring:
    """The rounds over all series, and the rows of those that are complete."""

    def __init__(
        self,
        series: list[Series],
        device: str,
        budget_ns: int,
        width: float,
        clock: Clock,
        progress: Progress | None,
        keep: Keep | None,
    ) -> None:
        self.series, self.rows = series, dict[int, ProfileRow]()
        self._device, self._budget_ns, self._width = device, budget_ns, width
        self._clock, self._keep = clock, keep or (lambda _row: None)
        self._progress = progress or (lambda _what, _share: None)
        self._last: dict[str, Series] = {}  # what ran last, by processor

    def load(self, providers: dict[str, Provider], alone: Sequence[Isolated] | None) -> None:
        """Processors may share a session (core 0, core 1): what it cost to make it is what it cost the first of them."""
        first: dict[int, Series] = {}
        for i, s in enumerate(self.series):
            c = s.candidate
            self._progress(f"loading {c.bundle.manifest.name} {c.subgraph.name} on {c.processor.name}", i / len(self.series))
            if alone is not None and alone[i].reason:
                s.fail(alone[i].reason)
                continue
            s.resident_bytes = alone[i].resident_bytes if alone is not None else None
            s.load(providers[c.processor.provider])
            made = first.setdefault(id(s.executable), s)
            if made is not s and s.executable is not None:
                s.create_ns, s.first_run_ns = made.create_ns, made.first_run_ns
            if c.processor.emulated and not s.failed:
                s.once()
        self.end([s for s in self.series if s.candidate.processor.emulated], "budget")
        self.end([s for s in self.series if s.failed], "failed")

    def rounds(self) -> None:
        """Until all are complete or time is up."""
        begun, done = self._clock.now_ns(), 0
        while running := [s for s in self.series if not s.ended]:
            spent = self._clock.now_ns() - begun
            if done and spent > self._budget_ns * (1 if done >= MIN_ROUNDS else OVERTIME):
                return
            self._progress("measuring back to back", min(max(spent / self._budget_ns, done / 1000), 1.0))
            for _, group in groupby(sorted(running, key=_processor), key=_processor):
                self._round(list(group), done)
            done += 1
            self._complete()

    def _round(self, group: list[Series], done: int) -> None:
        """One burst of each on its processor, in another order each time: what runs before one is not always the same."""
        random.Random(done).shuffle(group)
        if group[0] is self._last.get(_processor(group[0])):  # a burst that follows its own tells nothing of a switch
            group.append(group.pop(0))
        self._last[_processor(group[0])] = group[-1]

        def bursts() -> None:
            for s in group:
                s.burst(long=s.first_run_ns > self._budget_ns / LONG, switched=len(group) > 1)

        run_pinned(group[0].candidate.processor, bursts)
        self.end([s for s in group if s.failed], "failed")

    def _complete(self) -> None:
        """End the subgraphs whose every candidate is known well enough."""
        units: dict[tuple[str, str], list[Series]] = {}
        for s in self.series:
            if not s.ended:
                units.setdefault(s.candidate.unit, []).append(s)
        for unit in units.values():
            widths = [s.half_width() for s in unit]
            if all(w is not None and w <= self._width for w in widths):
                self.end(unit, "width")

    def end(self, series: Sequence[Series], ended: str) -> None:
        for s in series:
            s.end(ended)
            if id(s) not in self.rows:
                self.rows[id(s)] = row = s.row(self._device, BACK_TO_BACK)
                self._keep(row)


def _processor(series: Series) -> str:
    return series.candidate.processor.name
