"""What `edgeengine profile` measures: the machine, a bundle's candidates back to back, whole models at a period."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.cli.console import Bar, note
from edgeengine.devices import device_id
from edgeengine.devices.providers import Provider
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.rehearse import rehearse, rehearsed_rows
from edgeengine.graph.loads import make_loads
from edgeengine.io import Fixed, Source
from edgeengine.profiling import (
    Candidate,
    ProfileStore,
    candidates_of,
    measure_back_to_back,
    measure_machine,
    measure_within,
    reference_tensors,
    resume,
)  # fmt: skip
from edgeengine.spec import MachineRow, Plan, Processor, ProfileRow, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload

MACHINE_SECONDS = 4.0
PERIODS = 20  # at least so many runs at the period


@dataclass(frozen=True)
class Measuring:
    """Where and how long to measure. `seconds` in all, at most; `width`: enough when the median is known to within this share.

    Rows are in `store` as soon as they are complete, but for predicted ones: a plan rests on nothing but measured ones.
    """

    processors: Sequence[Processor]
    providers: dict[str, Provider]
    store: ProfileStore
    seconds: float
    width: float
    bar: Bar

    def machine(self, fresh: bool) -> list[MachineRow]:
        """The rows of this machine, measured first where one of the processors has none."""
        known = {r.name for r in self.store.machine_rows(device_id())}
        real = [p for p in self.processors if p.usable and not p.emulated]
        if real and (fresh or any(f"launch:{p.name}" not in known for p in real)):
            budget_s = min(self.seconds, MACHINE_SECONDS)
            with tempfile.TemporaryDirectory(prefix="edgeengine-") as name:
                loads = make_loads(Path(name))
                made = measure_machine(loads, real, self.providers, device_id(), budget_s=budget_s, progress=self.bar)
            for failure in made.failed:
                note(f"warning: {failure}")
            self.store.put(made.rows)
        return self.store.machine_rows(device_id())

    def back_to_back(self, bundle: Bundle, inputs: Tensors, again: bool) -> list[ProfileRow]:
        """What is known already (unless `again`), and what is measured now."""
        candidates = candidates_of(bundle, self.processors)
        tensors = {bundle.hash: reference_tensors(bundle, inputs)}
        stored = [] if again else self.store.rows(device_id(), bundle.hash)
        left, known = resume(candidates, tensors, stored, self.width)
        if known:
            many = f"{len(known)} of {len(candidates)}"
            note(f"{many} known to within {self.width:.2g} of the median; --again measures them anew")
        rows = measure_back_to_back(
            left, tensors, self.providers, device_id(),
            budget_s=self.seconds, width=self.width, isolate=True, progress=self.bar, keep=self._keep,
        )  # fmt: skip
        order = {(c.subgraph.name, c.processor.name): i for i, c in enumerate(candidates)}
        return sorted([*known, *rows], key=lambda r: order[r.subgraph, r.processor])

    def within_share(self, bundle: Bundle, inputs: Tensors, share: float) -> list[ProfileRow]:
        """Rows of this share of the candidates, measured; predictions of the others."""
        spent = 0.0

        def measure(chosen: Sequence[Candidate], tensors: dict[str, Tensors], budget_s: float) -> list[ProfileRow]:
            nonlocal spent
            spent += budget_s
            self.bar("measuring what tells most", min(spent / self.seconds, 1.0))
            return measure_back_to_back(
                chosen, tensors, self.providers, device_id(), budget_s=budget_s, width=self.width, keep=self._keep
            )

        tensors = {bundle.hash: reference_tensors(bundle, inputs)}
        return measure_within(
            candidates_of(bundle, self.processors), {1: tensors}, measure, device_id(),
            share=share, seconds=self.seconds, rng=np.random.default_rng(0),
        )  # fmt: skip

    def at_period(self, bundle: Bundle, inputs: Tensors, rows: Sequence[ProfileRow], period_ms: float) -> list[ProfileRow]:
        """The whole model alone, at its period, on each processor in turn (those that answered right in `rows`)."""
        whole, name = bundle.manifest.whole, "model"
        latency = {r.processor: r.latency for r in rows if r.subgraph == whole.name and r.usable}
        if not latency:
            note("warning: nothing is measured at the period: no processor runs the whole model right")
            return []
        self.bar(f"measuring every {period_ms:g} ms", 0.0)
        long_s = PERIODS * period_ms / 1e3
        if long_s > self.seconds:
            note(f"{PERIODS} periods take {long_s:g} s")
        steps = tuple(Step(whole.name, whole.start, whole.stop, p, measured) for p, measured in latency.items())
        usable = tuple(p for p in self.processors if p.usable)
        plan = Plan(SCHEMA, device_id(), "", usable, (TaskPlan(name, bundle.hash, bundle.manifest.segments, steps),))
        workload = Workload((Task(name, model=str(bundle.path), period_ms=period_ms, inputs="source:inputs"),))
        sources: dict[str, Source] = {"inputs": Fixed(inputs)}
        done = rehearse(workload, plan, {name: bundle}, sources, max(self.seconds, long_s), turns=None)
        periodic = rehearsed_rows(done, workload, plan, rows)
        self.store.put(periodic)
        return periodic

    def _keep(self, row: ProfileRow) -> None:
        self.store.put([row])
