"""Every configuration of a model measured once: what a search under a budget is replayed over, and judged by.

A model is cut into SEGMENTS parts; each range of them is a subgraph, on one core and on all, at batch 1 and, where the batch is
free, at 4 as well. The pace of a shared machine changes by the second: the whole model is run every few
configurations, and each latency is taken as a share of it.
"""

from __future__ import annotations

import hashlib
import math
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.cuts import Model
from benchmarks.harness import machine
from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Executable, Provider, load_providers
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import run_pinned
from edgeengine.graph import load_model
from edgeengine.graph.candidates import Writer, ranges
from edgeengine.graph.fix import fitting, with_fixed
from edgeengine.graph.manifest import encode, manifest_of
from edgeengine.graph.study import study
from edgeengine.io import make_source
from edgeengine.profiling import Candidate, reference_tensors
from edgeengine.profiling.budgeted import Configuration
from edgeengine.spec import Processor, SubgraphSpec, TensorSpec

SEGMENTS = 24
BATCHES = (1, 4)
TABLES = Path(__file__).with_name("results") / "search"
# Hours for what ten others show in minutes.
TOO_SLOW = frozenset({"light_vgg19", "light_zfnet512"})
SECONDS = 36.0  # of measuring per model, or LEAST_ROUNDS a pass where those take longer
LEAST_ROUNDS = 2  # a pass
PASSES = 3  # with sessions made anew: how one lies in memory can change its speed
BETWEEN = 12  # configurations visited between two looks at the pace
MEMORY_BYTES = 6_000_000_000  # for the sessions of a block: each takes SESSION_BYTES, and PACKED times its weights
SESSION_BYTES, PACKED = 1_000_000, 2
BURST_NS = 20_000_000  # time for the counted runs of a configuration in a round: one to three of them


class Table(msgspec.Struct, frozen=True):
    """`p50_ns` lists the configurations in the order of `configurations`; `machine` says what they hold for.

    `drift` is how far the pace of the machine went apart while measuring (its 90th percentile over its 10th, less 1), the worst
    of the processors, before it was taken out.
    """

    model: str
    machine: dict[str, object]
    segments: int
    subgraphs: tuple[SubgraphSpec, ...]
    processors: tuple[Processor, ...]
    batches: tuple[int, ...]
    p50_ns: tuple[int, ...]
    drift: float

    @property
    def configurations(self) -> list[Configuration]:
        return [Configuration(s, p, b) for b in self.batches for p in self.processors for s in self.subgraphs]


def load_tables(folder: Path = TABLES) -> list[Table]:
    """The recorded tables, by model name."""
    return [msgspec.json.decode(f.read_bytes(), type=Table) for f in sorted(folder.glob("*.json"))]


def record(model: Model, folder: Path = TABLES) -> Table:
    """Measure every configuration of `model`, write its table into `folder`."""
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as made:
        bundle, shapes = _cut(model, Path(made))
        table = _measure(model.name, bundle, shapes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{model.name}.json").write_bytes(msgspec.json.encode(table) + b"\n")
    return table


def _cut(model: Model, folder: Path) -> tuple[Bundle, dict[int, dict[str, tuple[int, ...]]]]:
    """Every range of segments, extracted (not verified: only timed), and the input shapes of each batch."""
    original = load_model(model.path)
    with with_fixed(original, fitting(original, model.fix)) as fixed:
        seen = study(fixed, model.shapes)
        segmentation = seen.cuts.by_count(min(SEGMENTS, seen.cuts.most))
        count = len(segmentation.segments)
        manifest = manifest_of(original, Writer(seen, folder).write(segmentation, ranges(count, count * count)))
    shapes = {1: dict(seen.tensors.fixed)}
    twice = seen.tensors.batched
    if twice is not None:
        free = {name: [2 * a == b for a, b in zip(shape, twice[name], strict=True)] for name, shape in shapes[1].items()}
        shapes |= {
            batch: {
                name: tuple(d * batch if f else d for d, f in zip(shape, free[name], strict=True))
                for name, shape in shapes[1].items()
            }
            for batch in BATCHES
        }
    return Bundle(folder, hashlib.sha256(encode(manifest)).hexdigest(), manifest), shapes


def _measure(name: str, bundle: Bundle, shapes: dict[int, dict[str, tuple[int, ...]]]) -> Table:
    providers = load_providers()
    found = [p for p in providers["CPUExecutionProvider"].discover(_cores()) if p.usable]
    processors = tuple({p.threads: p for p in reversed(found)}[n] for n in sorted({p.threads for p in found}))
    tensors = {}
    for batch, at in shapes.items():
        specs = [TensorSpec(s.name, s.dtype, at[s.name]) for s in bundle.manifest.inputs]
        inputs = make_source("random:0", specs).read(0, 0)
        tensors[batch] = reference_tensors(bundle, inputs)
    providers[processors[0].provider].close()
    empty = Table(name, machine(), bundle.manifest.segments, bundle.manifest.subgraphs, processors, tuple(shapes), (), 0.0)
    p50_ns, drift = _in_passes(bundle, empty.configurations, tensors, providers)
    return msgspec.structs.replace(empty, p50_ns=p50_ns, drift=drift)


def _cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else tuple(range(os.cpu_count() or 1))


def _in_passes(
    bundle: Bundle, every: Sequence[Configuration], tensors: dict[int, Tensors], providers: dict[str, Provider]
) -> tuple[tuple[int, ...], float]:
    """The median of each in nanoseconds, the pace of the machine taken out; and how far that went apart."""
    rng = np.random.default_rng(0)
    held = statistics.fmean(c.subgraph.weight_bytes for c in every) * PACKED + SESSION_BYTES
    count = math.ceil(len(every) * held / MEMORY_BYTES)
    blocks = [block for _ in range(PASSES) for block in np.array_split(rng.permutation(len(every)), count)]
    ratios: list[list[float]] = [[] for _ in every]
    paces: dict[str, list[int]] = {}
    for block in blocks:
        turns = Turns(bundle, [every[int(i)] for i in block], tensors, providers, rng)
        turns.run(SECONDS / len(blocks))
        for i, mine in zip(block, turns.ratios, strict=True):
            ratios[int(i)] += mine
        for name, pace in turns.paces.items():
            paces.setdefault(name, []).extend(pace)
        for provider in providers.values():
            provider.close()
    usual = {name: statistics.median(pace) for name, pace in paces.items()}
    p50_ns = tuple(round(statistics.median(r) * usual[c.processor.name]) for r, c in zip(ratios, every, strict=True))
    drift = max(float(np.quantile(pace, 0.9) / np.quantile(pace, 0.1)) for pace in paces.values()) - 1
    return p50_ns, drift


class Turns:
    """Configurations run in turn, in an order drawn anew each round; every few, the whole model tells the machine's pace.

    `ratios`: per configuration, its latencies over that of the whole model beside them on the same processor. `paces`: the
    latter in nanoseconds, by processor.
    """

    def __init__(
        self,
        bundle: Bundle,
        chosen: Sequence[Configuration],
        tensors: dict[int, Tensors],
        providers: dict[str, Provider],
        rng: np.random.Generator,
    ):
        def load(subgraph: SubgraphSpec, processor: Processor) -> Executable:
            return providers[processor.provider].load(bundle, Candidate(bundle, subgraph, processor).step, processor)

        self.ratios: list[list[float]] = [[] for _ in chosen]
        self.paces: dict[str, list[int]] = {c.processor.name: [] for c in chosen}
        self._chosen, self._tensors, self._rng = chosen, tensors, rng
        self._loaded = [load(c.subgraph, c.processor) for c in chosen]
        self._whole = {c.processor: load(bundle.manifest.whole, c.processor) for c in chosen}

    def run(self, seconds: float) -> None:
        rounds, end = 0, time.monotonic() + seconds
        while rounds < LEAST_ROUNDS or time.monotonic() < end:
            order = [int(i) for i in self._rng.permutation(len(self._chosen))]
            for processor in self._whole:
                mine = [i for i in order if self._chosen[i].processor == processor]
                run_pinned(processor, lambda processor=processor, mine=mine: self._round(processor, mine))  # type: ignore[misc]
            rounds += 1

    def _round(self, processor: Processor, order: Sequence[int]) -> None:
        whole, feeds, paces = self._whole[processor], self._tensors[1], self.paces[processor.name]
        before = statistics.median(_burst(whole, feeds))
        for begin in range(0, len(order), BETWEEN):
            visited = order[begin : begin + BETWEEN]
            samples = [_burst(self._loaded[i], self._tensors[self._chosen[i].batch]) for i in visited]
            after = statistics.median(_burst(whole, feeds))
            pace = (before + after) / 2
            paces.append(round(pace))
            for i, mine in zip(visited, samples, strict=True):
                self.ratios[i] += [ns / pace for ns in mine]
            before = after


def _burst(executable: Executable, feeds: Tensors) -> list[int]:
    """Latencies in nanoseconds of one to three runs, after one that is not counted."""
    clock = time.perf_counter_ns
    begun = clock()
    executable.run(feeds)
    samples = []
    for _ in range(max(1, min(3, BURST_NS // (clock() - begun)))):
        begun = clock()
        executable.run(feeds)
        samples.append(clock() - begun)
    return samples
