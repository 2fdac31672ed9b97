"""One candidate while it is measured: loaded, checked, run in bursts, and what its row says in the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median_low

import msgspec
import numpy as np

from edgeengine.clock import ORDER_MAIN, Clock
from edgeengine.devices.providers import Executable, Provider
from edgeengine.devices.providers.base import Tensors, Traceable
from edgeengine.errors import DeviceError
from edgeengine.profiling.candidate import Candidate, shapes_text
from edgeengine.profiling.conditions import governor, timestamp, versions
from edgeengine.profiling.exactness import Verdict, check
from edgeengine.profiling.interval import half_width
from edgeengine.spec import Latency, Placement, ProfileRow

# A burst: runs until so much time has passed, to refill what the previous candidate emptied, then counted runs. Measured: a
# 0.16 ms model takes twice as long in its first run after another's, 10 % more in its third; a 1.5 ms one that in its second.
WARM_NS = 3_000_000
COUNTED_NS, LEAST_RUNS, MOST_RUNS = 2_000_000, 3, 12
SETTLE_NS = 50_000_000  # how long outputs that were wrong are given to become right: then the provider returned too early
FAILURES = (DeviceError, MemoryError)

UNCHECKED = Verdict("unchecked", None, 0)


@dataclass
class Series:
    """`samples` of all bursts; `medians`: one per burst, and `switches`: what the first run of each took, after another's."""

    candidate: Candidate
    tensors: Tensors
    clock: Clock
    executable: Executable | None = None
    create_ns: int = 0
    first_run_ns: int = 0
    resident_bytes: int | None = None
    verdict: Verdict = UNCHECKED
    ended: str = ""
    samples: list[int] = field(default_factory=list)
    medians: list[int] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)
    placement: Placement | None = None
    _run: Callable[[Tensors], object] | None = None

    def load(self, provider: Provider) -> None:
        """Create the session, run it once for these shapes, look at what came out: none of it belongs to the steady state."""
        now, c = self.clock.now_ns, self.candidate
        try:
            begun = now()
            self.executable = provider.load(c.bundle, c.step, c.processor)
            created = now()
            self.placement = self.executable.placement
            outputs = self.executable.run(self.tensors)
            kept = {name: np.array(value) for name, value in outputs.items()}  # as they are on return; waits for lazy ones
            self.create_ns, self.first_run_ns = created - begun, now() - created
            self._judge(outputs, kept)
            if self.verdict.verdict == "wrong":
                self.ended = "failed"  # how fast it is wrong does not matter, and what returns too early would pile up
                return
            lazy = any(type(value) is not np.ndarray for value in outputs.values())
            self._run = self._settled if lazy else self.executable.run
        except FAILURES as e:
            self.fail(e)

    def _settled(self, feeds: Tensors) -> None:
        """A run whose outputs are promises has not ended before they are there."""
        assert self.executable is not None
        for value in self.executable.run(feeds).values():
            np.asarray(value)

    def _judge(self, outputs: Tensors, kept: Tensors) -> None:
        """Keeps the worse of what was found before and now."""
        c = self.candidate
        found = check(c.bundle, c.subgraph, c.processor, kept, self.tensors)
        if found.verdict == "wrong":
            assert self.executable is not None
            self.clock.sleep_until(self.clock.now_ns() + SETTLE_NS, ORDER_MAIN, 0)
            self.executable.run(self.tensors)  # some fill what they handed out when they are next asked
            if check(c.bundle, c.subgraph, c.processor, outputs, self.tensors).verdict == "ok":
                found = found._replace(reason="run() returns before its outputs are there")
        if self.verdict.verdict != "wrong":
            self.verdict = found

    def burst(self, long: bool, switched: bool) -> None:
        """Warm up, then counted runs (only one if `long`). `switched`: another candidate ran here before."""
        run, now, feeds = self._run, self.clock.now_ns, self.tensors
        assert run is not None
        found: list[int] = []
        try:
            start = now()
            run(feeds)
            first = (begun := now()) - start
            while begun - start < WARM_NS:
                run(feeds)
                begun = now()
            end = begun + COUNTED_NS
            while len(found) < (1 if long else LEAST_RUNS) or (begun < end and len(found) < MOST_RUNS and not long):
                begun = now()
                run(feeds)
                found.append(now() - begun)
        except FAILURES as e:
            self.fail(e)
            return
        self.samples += found
        self.medians.append(median_low(found))
        if switched:
            self.switches.append(first)

    def once(self) -> None:
        """The first run stands for all: of an emulated processor the time means nothing."""
        self.samples, self.medians = [self.first_run_ns], [self.first_run_ns]

    def fail(self, error: BaseException | str) -> None:
        text = " ".join(str(error).split()) or type(error).__name__
        self.verdict, self.ended = Verdict("failed", None, 0, text), "failed"
        self._run = self.executable = self.placement = None

    @property
    def failed(self) -> bool:
        return self.ended == "failed"

    def half_width(self) -> float | None:
        """Of the bursts' medians: runs of one burst are not independent of each other."""
        return half_width(self.medians)

    def end(self, ended: str) -> None:
        """Measuring is over; the outputs are looked at once more, as they are after many runs."""
        if self.failed or self.ended:
            return
        self.ended = ended
        if ended == "interrupted" or self.executable is None:
            return
        try:
            outputs = self.executable.run(self.tensors)
            self._judge(outputs, {name: np.array(value) for name, value in outputs.items()})
            if isinstance(self.executable, Traceable) and self.executable.placement is not None:
                share = self.executable.time_share(self.tensors)
                self.placement = msgspec.structs.replace(self.executable.placement, time_share=share)
        except FAILURES as e:
            self.fail(e)

    def row(self, device: str, condition: str) -> ProfileRow:
        c, verdict = self.candidate, self.verdict
        measured = bool(self.samples) and not self.failed
        return ProfileRow(
            bundle=c.bundle.hash,
            device=device,
            processor=c.processor.name,
            subgraph=c.subgraph.name,
            shapes=shapes_text(c.subgraph, self.tensors),
            condition=condition,
            latency=Latency.of(self.samples) if measured else Latency.none(),
            first_run_ns=self.first_run_ns,
            create_ns=self.create_ns,
            resident_bytes=self.resident_bytes,
            measured_at=timestamp(),
            versions=versions(),
            placement=self.placement,
            half_width=self.half_width() if measured else None,
            ended=self.ended,
            verdict=verdict.verdict,
            max_diff=verdict.max_diff,
            denormals=verdict.denormals,
            denormal_weights=c.subgraph.denormal_weights,
            cores=c.processor.cores,
            governor=governor(c.processor.cores),
            switch_ns=median_low(self.switches) - median_low(self.samples) if measured and self.switches else None,
            reason=verdict.reason,
            options=c.processor.options,
        )
