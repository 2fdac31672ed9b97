"""What bounds a subgraph."""

from __future__ import annotations

import msgspec
import pytest

from edgeengine.profiling import bound, moved_bytes
from edgeengine.spec import Latency, MachineRow, ProfileRow, SubgraphSpec, TensorSpec

MS = 1_000_000


def _row(name: str, ns: int, amount: int = 0) -> tuple[str, MachineRow]:
    return name, MachineRow("d", name, Latency.constant(ns), "", amount)


# 100 MACs and 1 byte per nanosecond from far memory, 8 bytes from near; 20 us to launch, 1 us a node.
MACHINE = dict([
    _row("compute:gpu", 10 * MS, 1000 * MS), _row("launch:gpu", 20_000), _row("node:gpu", 1000),
    _row("memory:1000000:gpu", 145_000, 1_000_000), _row("memory:64000000:gpu", 64_020_000, 64_000_000),
])  # fmt: skip
X, Y = TensorSpec("x", "float32", (10, 100)), TensorSpec("y", "float32", (50,))
ROW = ProfileRow("b", "d", "gpu", "s", "", "back_to_back", Latency.constant(4 * MS), 0, 0, None, "", {})


def spec(macs: int | None, weight_bytes: int = 0, nodes: int = 1) -> SubgraphSpec:
    return SubgraphSpec("s", "s.onnx", 0, 1, (X,), (Y,), nodes, macs, weight_bytes=weight_bytes)


@pytest.mark.parametrize(
    ("subgraph", "by", "share"),
    [
        (spec(200 * MS), "compute", 0.5),
        (spec(1, 2 * MS - 4200), "memory", 0.5),  # 2 MB, from far memory
        (spec(1, 800_000 - 4200), "memory", 0.025),  # 0.8 MB, from near memory
        (spec(1, 0, nodes=181), "launch", 0.05),
    ],
)
def test_bound_is_what_takes_longest(subgraph: SubgraphSpec, by: str, share: float) -> None:
    found = bound(subgraph, ROW, MACHINE)
    assert found is not None and (found.by, found.share) == (by, pytest.approx(share))


def test_bytes_moved_are_weights_inputs_and_outputs() -> None:
    assert moved_bytes(spec(1, 1000)) == 1000 + 4000 + 200
    assert moved_bytes(msgspec.structs.replace(spec(1), inputs=(TensorSpec("x", "float32", ("n", 3)),))) is None


def test_nothing_is_claimed_where_something_is_not_known() -> None:
    assert bound(spec(None), ROW, MACHINE) is None
    assert bound(spec(1), msgspec.structs.replace(ROW, processor="npu"), MACHINE) is None
    assert bound(spec(1), msgspec.structs.replace(ROW, latency=Latency.none()), MACHINE) is None
    for name in ("compute:gpu", "launch:gpu", "node:gpu"):
        assert bound(spec(1), ROW, {n: r for n, r in MACHINE.items() if n != name}) is None
    assert bound(spec(1), ROW, {n: r for n, r in MACHINE.items() if not n.startswith("memory")}) is None
