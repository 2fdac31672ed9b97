"""What can be measured: one subgraph of one bundle on one processor, with real tensors to run it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
    """Canonical text of the concrete input shapes: part of a row's key."""
    return ";".join(f"{t.name}={format_shape(tensors[t.name].shape)}" for t in sorted(subgraph.inputs, key=lambda t: t.name))
