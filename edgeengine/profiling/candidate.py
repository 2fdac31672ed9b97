"""What can be measured: one subgraph of one bundle on one processor, with real tensors to run it on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Executable, Provider
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


class Loaded(NamedTuple):
    """A candidate made ready. `create_ns`: session creation; `resident_bytes`: what it added to the process, where readable."""

    executable: Executable
    create_ns: int
    first_run_ns: int
    resident_bytes: int | None


def candidates_of(bundle: Bundle, processors: Sequence[Processor]) -> list[Candidate]:
    """Every subgraph of the bundle on every usable processor."""
    return [Candidate(bundle, s, p) for s in bundle.manifest.subgraphs for p in processors if p.usable]


def chain_tensors(bundle: Bundle, inputs: Tensors, provider: Provider, processor: Processor) -> Tensors:
    """All boundary tensors, made by running the finest chain on real `inputs`: values in range wherever they are indices.

    Subgraphs that are not one segment long are fed from the same tensors.
    """
    tensors = dict(inputs)
    by_start = {s.start: s for s in bundle.manifest.subgraphs if s.stop == s.start + 1}
    for position in range(bundle.manifest.segments):
        candidate = Candidate(bundle, by_start[position], processor)
        tensors.update(provider.load(bundle, candidate.step, processor).run(tensors))
    return tensors


def load(candidate: Candidate, provider: Provider, tensors: Tensors) -> Loaded:
    """Create the session and run it once, both timed apart from the steady state."""
    before = _resident_bytes()
    begun = time.perf_counter_ns()
    executable = provider.load(candidate.bundle, candidate.step, candidate.processor)
    created = time.perf_counter_ns()
    executable.run(tensors)
    done = time.perf_counter_ns()
    after = _resident_bytes()
    grown = None if before is None or after is None else max(after - before, 0)
    return Loaded(executable, created - begun, done - created, grown)


def shapes_text(subgraph: SubgraphSpec, tensors: Tensors) -> str:
    """Canonical text of the concrete input shapes: part of a row's key."""
    return ";".join(f"{t.name}={format_shape(tensors[t.name].shape)}" for t in sorted(subgraph.inputs, key=lambda t: t.name))


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("onnxruntime", "numpy")}


def timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
