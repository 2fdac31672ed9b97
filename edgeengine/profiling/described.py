"""Rows for a device that nobody has at hand: what each subgraph is expected to take there, with its bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from edgeengine.bundle import Bundle
from edgeengine.devices.effects import spread
from edgeengine.profiling.back_to_back import BACK_TO_BACK
from edgeengine.spec import Fallback, Placement, ProfileRow, SubgraphSpec, format_shape
from edgeengine.spec.device import DeviceProfile, ProcessorProfile

HOST = "cpu"  # who takes what an accelerator leaves


class Expected(NamedTuple):
    """The median latency, and what bounds it at 90 %. `basis`: "predicted" or "estimated" (see spec.TaskPlan).

    `left` names the nodes that fall back to the CPU, by operator; their time and their transfers, two for each run of such nodes
    (`copies` in all), are in the latency.
    """

    median_ns: float
    low_ns: float
    high_ns: float
    basis: str
    left: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    copies: int = 0


# What a subgraph takes on a processor, or why it cannot run there.
Expect = Callable[[Bundle, SubgraphSpec, ProcessorProfile], Expected | str]


class Described(NamedTuple):
    """Rows by subgraph and processor of the engine, and why others are missing: (processor, reason)."""

    rows: list[ProfileRow]
    refused: list[tuple[str, str]]


def described_rows(bundle: Bundle, device: DeviceProfile, expect: Expect) -> Described:
    """Every subgraph of the bundle on every processor of the device that can run it."""
    rows, refused = [], []
    for subgraph in bundle.manifest.subgraphs:
        for profile in device.processor:
            expected = expect(bundle, subgraph, profile)
            if isinstance(expected, str):
                refused.append((profile.name, expected))
                continue
            rows += [_row(bundle, subgraph, device, p.name, expected) for p in profile.processors]
    return Described(rows, list(dict.fromkeys(refused)))


def _row(bundle: Bundle, subgraph: SubgraphSpec, device: DeviceProfile, processor: str, expected: Expected) -> ProfileRow:
    fallback = tuple(Fallback(op, names, HOST, "not in its table of operators") for op, names in expected.left.items())
    fallen = sum(len(f.nodes) for f in fallback)
    placed = {processor: subgraph.nodes - fallen} | ({HOST: fallen} if fallen else {})
    return ProfileRow(
        bundle=bundle.hash,
        device=device.name,
        processor=processor,
        subgraph=subgraph.name,
        shapes=_shapes(subgraph),
        condition=BACK_TO_BACK,
        latency=spread(expected.median_ns, device.tail),
        first_run_ns=round(expected.median_ns * (device.first_run.value if device.first_run is not None else 1.0)),
        create_ns=0,
        resident_bytes=None,
        measured_at="",
        versions={},
        placement=Placement(processor, placed, fallback, copies=expected.copies),
        ended=expected.basis,
        interval_ns=(round(expected.low_ns), round(expected.high_ns)),
    )


def _shapes(subgraph: SubgraphSpec) -> str:
    return ";".join(f"{t.name}={format_shape(t.shape)}" for t in sorted(subgraph.inputs, key=lambda t: t.name))


def bounds_of(row: ProfileRow) -> tuple[float, float] | None:
    """Factors on the median between which it truly lies; None for a row that was measured."""
    if row.interval_ns is None:
        return None
    median_ns = max(row.latency.p50_ns, 1)
    return min(row.interval_ns[0] / median_ns, 1.0), max(row.interval_ns[1] / median_ns, 1.0)


def reasons(refused: Sequence[tuple[str, str]]) -> str:
    """In one line."""
    return "; ".join(f"{processor}: {why}" for processor, why in refused)
