"""What a latency is predicted from: the work a bundle's manifest states for each segment, as a roofline sees it.

A roofline bounds a kernel's time by its arithmetic and by the bytes it moves (Williams, Waterman, Patterson, "Roofline: an
insightful visual performance model", CACM 2009); a launch cost per node is added, as small models are made of those. The work of
a range of segments is the sum over its segments, all at the manifest's shapes; arithmetic and tensors grow with the batch,
weights do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgeengine.spec import Processor, SubgraphSpec, TensorSpec

# Operators whose arithmetic runs at speeds of their own; the rest are counted as nodes only.
CLASSES = (
    frozenset({"Conv", "ConvInteger", "ConvTranspose", "FusedConv", "QLinearConv"}),
    frozenset({"Einsum", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"}),
    frozenset({"GRU", "LSTM", "RNN"}),
)


class Configuration(NamedTuple):
    """One choice to measure: a range of segments, a processor (with its threads), a multiple of the manifest's batch."""

    subgraph: SubgraphSpec
    processor: Processor
    batch: int = 1


def roofline_features(configurations: Sequence[Configuration], segments: Sequence[SubgraphSpec]) -> np.ndarray:
    """Non-negative work of each configuration, float64 [configurations, features]; `segments` are the single ones, in order.

    Columns: one call; nodes; nodes of each of CLASSES; multiply-accumulates; bytes of weights, of the segments' tensors, and of
    those that enter and leave. What the manifest does not know counts zero.
    """
    work = np.array([_work(s) for s in segments], np.float64)
    before = np.concatenate([np.zeros((1, work.shape[1])), np.cumsum(work, axis=0)])
    start = [c.subgraph.start for c in configurations]
    stop = [c.subgraph.stop for c in configurations]
    batch = np.array([c.batch for c in configurations], np.float64)[:, None]
    crossing = np.array([[_boundary_bytes(c.subgraph)] for c in configurations], np.float64)
    fixed, growing = np.split(before[stop] - before[start], [work.shape[1] - 2], axis=1)
    return np.hstack([np.ones_like(batch), fixed, growing * batch, crossing * batch])


def _work(segment: SubgraphSpec) -> tuple[int, ...]:
    by_class = [sum(segment.op_counts.get(op, 0) for op in ops) for ops in CLASSES]
    return (segment.nodes, *by_class, segment.weight_bytes, segment.macs or 0, _boundary_bytes(segment))


def _boundary_bytes(subgraph: SubgraphSpec) -> int:
    return sum(_nbytes(t) for t in (*subgraph.inputs, *subgraph.outputs))


def _nbytes(tensor: TensorSpec) -> int:
    return tensor.nbytes or 0
