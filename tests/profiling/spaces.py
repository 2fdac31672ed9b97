"""A model that exists only as a manifest, and what its configurations cost: known to the last nanosecond."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.profiling import Configuration
from edgeengine.spec import Manifest, Processor, SubgraphSpec, TensorSpec
from edgeengine.spec.bundle import Exactness

ONE = Processor("cpu0", "cpu", "CPUExecutionProvider", ("core0",), host_core=0, cores=(0,))
OTHER = Processor("cpu1", "cpu", "CPUExecutionProvider", ("core1",), host_core=1, cores=(1,))
ALL = Processor("cpu-all", "cpu", "CPUExecutionProvider", ("core0", "core1"), host_core=0, cores=(0, 1), threads=2)
NPU = Processor("npu", "npu", "FakeNpu", ("npu",))


def subgraphs(segments: int, seed: int = 0) -> tuple[SubgraphSpec, ...]:
    """Every range of a chain of segments, convolutions and element-wise nodes, of random sizes."""
    rng = np.random.default_rng(seed)
    macs = [int(m) for m in 10 ** rng.uniform(5, 7, segments)]
    widths = [int(w) for w in rng.integers(16, 4096, segments + 1)]
    nodes = [int(n) for n in rng.integers(1, 12, segments)]

    def tensor(position: int) -> TensorSpec:
        return TensorSpec(f"t{position}", "float32", (1, widths[position]))

    def part(a: int, b: int) -> SubgraphSpec:
        counts = {"Conv": sum(nodes[a:b]), "Relu": b - a}
        size = sum(macs[a:b])
        return SubgraphSpec(
            f"s{a}_{b}", f"s{a}_{b}.onnx", a, b, (tensor(a),), (tensor(b),),
            nodes=sum(counts.values()), macs=size, weight_bytes=size // 50, op_counts=counts,
        )  # fmt: skip

    return tuple(part(a, b) for a in range(segments) for b in range(a + 1, segments + 1))


def single(parts: Sequence[SubgraphSpec]) -> list[SubgraphSpec]:
    return [s for s in parts if s.stop == s.start + 1]


def bundle(segments: int) -> Bundle:
    parts = subgraphs(segments)
    whole = next(s for s in parts if (s.start, s.stop) == (0, segments))
    manifest = Manifest(
        schema=1, name="chain", source="chain.onnx", source_sha256="", tools={}, ir_version=8, opset={"": 17},
        inputs=whole.inputs, outputs=whole.outputs, shapes={t.name: t.dims for t in whole.inputs}, segments=segments,
        subgraphs=parts, files={}, exactness=Exactness(0, False, 0.0, 0.0, 0.0),
    )  # fmt: skip
    return Bundle(Path("chain.edge"), "0" * 64, manifest)


def tensors(of: Bundle, batch: int = 1) -> dict[str, np.ndarray]:
    every = {t.name: t for s in of.manifest.subgraphs for t in (*s.inputs, *s.outputs)}
    return {name: np.zeros((batch, *t.dims[1:]), np.float32) for name, t in every.items()}


def latency_ns(configuration: Configuration) -> float:
    """Arithmetic at 10 MACs/ns a core, weights at 10 bytes/ns, 2 us a node, 8 us a call; all cores 1.7 times as fast, 10 us more.

    Segments 0..5 gain nothing from a second core (they wait for memory), so that the best chain changes processors.
    """
    subgraph, processor, batch = configuration
    alone = batch * (subgraph.macs or 0) / 10 + subgraph.weight_bytes / 10 + 2_000 * subgraph.nodes
    if processor.threads == 1:
        return alone + 8_000
    inert = max(0, min(subgraph.stop, 5) - subgraph.start) / (subgraph.stop - subgraph.start)
    return alone * (1.1 * inert + (1 - inert) / 1.7) + 18_000
