"""The machine itself: starting, multiplying, reading, copying, changing over, and running side by side.

Measured with loads of known work, which are given (`edgeengine.graph.loads` makes them), through the same providers and in the
same interleaved rounds as any subgraph, outputs checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.clock import Clock, MonotonicClock
from edgeengine.devices.providers import Executable, Provider
from edgeengine.devices.threads import run_pinned
from edgeengine.errors import DeviceError
from edgeengine.io import make_source
from edgeengine.profiling.back_to_back import Progress, measure_back_to_back
from edgeengine.profiling.candidate import Candidate
from edgeengine.profiling.conditions import timestamp
from edgeengine.profiling.corun import Running, measure_beside
from edgeengine.profiling.reference import reference_tensors
from edgeengine.spec import Latency, MachineRow, Processor, ProfileRow

WIDTH = 0.05
COPIES = 15  # times a block of memory is copied
HOST = "host"

Loads = Mapping[str, tuple[Bundle, int]]  # by name: the bundle, and the MACs or bytes of one run


class Machine(NamedTuple):
    """`failed` says in a line each what could not be measured."""

    rows: list[MachineRow]
    failed: list[str]


def measure_machine(
    loads: Loads,
    processors: Sequence[Processor],
    providers: dict[str, Provider],
    device: str,
    *,
    budget_s: float,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Machine:
    """Half of `budget_s` goes to the loads on each processor, half to pairs of processors."""
    clock, usable = clock or MonotonicClock(), [p for p in processors if p.usable and not p.emulated]
    tensors = {}
    for bundle, _ in loads.values():
        tensors[bundle.hash] = reference_tensors(bundle, dict(make_source("random:0", bundle.manifest.inputs).read(0, 0)))
    alone = [bundle for name, (bundle, _) in loads.items() if not name.startswith("neighbour:")]
    candidates = [Candidate(b, b.manifest.whole, p) for b in alone for p in usable]
    rows = measure_back_to_back(
        candidates, tensors, providers, device, budget_s=budget_s / 2, width=WIDTH, clock=clock, progress=progress
    )
    names = {bundle.hash: name for name, (bundle, _) in loads.items()}
    failed = [f"{names[r.bundle]} on {r.processor} {r.verdict}: {r.reason}" for r in rows if not r.usable]
    when = timestamp()
    made = [MachineRow(device, *figure[:2], when, *figure[2:]) for p in usable for figure in _figures(p, rows, loads)]
    copied = [amount for name, (_, amount) in loads.items() if name.startswith("copy:")]
    made += [MachineRow(device, f"transfer:{HOST}:{HOST}:{n}", _copy(n, usable[0], clock), when, n) for n in copied]
    largest = max((n for n in loads if n.startswith("memory:")), key=lambda n: loads[n][1])
    pairs = [(a, b) for a, b in permutations(usable, 2) if not a.conflicts(b)]
    for i, (a, b) in enumerate(pairs):
        if progress is not None:
            progress(f"measuring {a.name} beside {b.name}", i / len(pairs))
        for load, neighbour in (("compute", "neighbour:compute"), (largest, "neighbour:memory")):
            try:
                one, other = (
                    Running(p, _loaded(bundle, p, providers), tensors[bundle.hash])
                    for bundle, p in ((loads[load][0], a), (loads[neighbour][0], b))
                )
                beside, factor = measure_beside(one, other, budget_s / 4 / len(pairs), clock)
            except DeviceError as e:
                failed.append(f"{load} on {a.name} beside {b.name} failed: {e}")
            else:
                made.append(MachineRow(device, f"beside:{load}:{a.name}:{b.name}", beside, when, loads[load][1], factor))
    return Machine(made, failed)


def _loaded(bundle: Bundle, processor: Processor, providers: Mapping[str, Provider]) -> Executable:
    candidate = Candidate(bundle, bundle.manifest.whole, processor)
    return providers[processor.provider].load(bundle, candidate.step, processor)


def _figures(processor: Processor, rows: Sequence[ProfileRow], loads: Loads) -> list[tuple[str, Latency, int]]:
    """(name, latency, amount) of what the loads say of one processor, as far as they ran."""
    name = processor.name
    found = {load: r for load, (b, _) in loads.items() for r in rows if r.bundle == b.hash and r.processor == name and r.usable}
    figures = [(f"{n}:{name}", r.latency, loads[n][1]) for n, r in found.items() if n == "compute" or n.startswith("memory:")]
    launch = found.get("launch")
    if launch is not None:
        figures.append((f"launch:{name}", launch.latency, 0))
        if "nodes" in found:
            nodes = loads["nodes"][0].manifest.whole.nodes
            each = max(found["nodes"].latency.p50_ns - launch.latency.p50_ns, 0) // (nodes - 1)
            figures.append((f"node:{name}", Latency.constant(each), 0))
        if processor.kind != "cpu":  # there and back; what it adds to a run of next to nothing
            for load in (n for n in found if n.startswith("copy:")):
                added = max(found[load].latency.p50_ns - launch.latency.p50_ns, 0)
                figures.append((f"transfer:{HOST}:{name}:{loads[load][1]}", Latency.constant(added), loads[load][1]))
    switches = [max(r.switch_ns, 0) for r in found.values() if r.switch_ns is not None]
    if switches:
        figures.append((f"switch:{name}", Latency.of(switches), 0))
    return figures


def _copy(size: int, processor: Processor, clock: Clock) -> Latency:
    """Copying a boundary within the host's memory, on one core."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    found: list[int] = []

    def body() -> None:
        for _ in range(COPIES):
            begun = clock.now_ns()
            np.copyto(target, source)
            found.append(clock.now_ns() - begun)

    run_pinned(processor, body)
    return Latency.of(found[1:])
