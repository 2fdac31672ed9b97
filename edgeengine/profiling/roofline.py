"""What bounds a subgraph on a processor: its arithmetic, its memory traffic, or getting started at all.

The roofline of S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52(4), 2009, with a third bound for launching: a run that computes nothing, plus what
each further node costs. Peak and bandwidth are measured on the same provider (see `machine.py`). The label says what to change:
more arithmetic per second, fewer bytes (quantize), or fewer and larger subgraphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edgeengine.spec import MachineRow, ProfileRow, SubgraphSpec


class Bound(NamedTuple):
    """`by`: "compute", "memory" or "launch", whichever takes longest; `share`: that time over the measured p50."""

    by: str
    share: float


def moved_bytes(subgraph: SubgraphSpec) -> int | None:
    """Weights, inputs and outputs, each once: the least that crosses the memory bus. None while a shape is symbolic."""
    tensors = [t.nbytes for t in (*subgraph.inputs, *subgraph.outputs)]
    return None if None in tensors else subgraph.weight_bytes + sum(n for n in tensors if n is not None)


def bound(subgraph: SubgraphSpec, row: ProfileRow, machine: Mapping[str, MachineRow]) -> Bound | None:
    """None where the cost of the subgraph or a figure of the processor is not known. `machine` is by name."""
    compute, launch, node = (machine.get(f"{name}:{row.processor}") for name in ("compute", "launch", "node"))
    moved = moved_bytes(subgraph)
    if subgraph.macs is None or moved is None or compute is None or launch is None or node is None or not row.latency.n:
        return None
    reading = _ns_per_byte(moved, row.processor, launch, machine)
    if reading is None:
        return None
    times = {
        "compute": subgraph.macs / compute.per_second * 1e9,
        "memory": moved * reading,
        "launch": launch.latency.p50_ns + (subgraph.nodes - 1) * node.latency.p50_ns,
    }
    by = max(times, key=times.__getitem__)
    return Bound(by, times[by] / max(row.latency.p50_ns, 1))


def _ns_per_byte(moved: int, processor: str, launch: MachineRow, machine: Mapping[str, MachineRow]) -> float | None:
    """At the level of memory that so many bytes come from: that of the smallest load that reads as many."""
    found = [r for name, r in machine.items() if name.startswith("memory:") and name.endswith(f":{processor}")]
    levels = sorted(found, key=lambda r: r.amount)
    if not levels:
        return None
    level = next((r for r in levels if r.amount >= moved), levels[-1])
    return max(level.latency.p50_ns - launch.latency.p50_ns, 0) / level.amount
