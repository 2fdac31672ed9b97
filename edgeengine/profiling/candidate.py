"""What can be measured: one subgraph of one bundle on one processor, with real tensors to run it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Tensors
from edgeengine.spec import Latency, Processor, Step, SubgraphSpec, format_shape


class Candidate(NamedTuple):
    bundle: Bundle
    subgraph: SubgraphSpec
    processor: Processor

    @property
    def step(self) -> Step:
        s = self.subgraph
        return Step(s.name, s.start, s.stop, self.processor.name, Latency.constant(0))

    @property
    def unit(self) -> tuple[str, str]:
        """Bundle and subgraph: candidates of one unit are compared with each other."""
        return (self.bundle.hash, self.subgraph.name)


def candidates_of(bundle: Bundle, processors: Sequence[Processor]) -> list[Candidate]:
    """Every subgraph of the bundle on every usable processor."""
    return [Candidate(bundle, s, p) for s in bundle.manifest.subgraphs for p in processors if p.usable]


def shapes_text(subgraph: SubgraphSpec, tensors: Tensors) -> str:
    """Canonical text of the concrete input shapes, part of a row's key: "n=1(16000);x=1x576".

    A lone integer or flag decides how much is computed (a loop's count, a sample rate), as a shape does: its value is there too.
    """
    return ";".join(f"{t.name}={_shape_text(np.asarray(tensors[t.name]))}" for t in sorted(subgraph.inputs, key=lambda t: t.name))


def _shape_text(value: np.ndarray) -> str:
    return format_shape(value.shape) + (f"({value.item():d})" if value.size == 1 and value.dtype.kind in "iub" else "")
