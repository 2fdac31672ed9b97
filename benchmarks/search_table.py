"""Every configuration of a model measured once: what a search under a budget is replayed over, and judged by.

A model is cut into SEGMENTS parts; each range of them is a subgraph, on one core and on all, at batch 1 and, where the batch is
free, at 4 as well. Memory holds a block of sessions at a time, drawn at random and run in turn; the whole model runs among each
block, and what it slows down by between blocks is taken out of them.
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
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import run_pinned
from edgeengine.graph import load_model
from edgeengine.graph.candidates import Writer, ranges
from edgeengine.graph.fix import fitting, with_fixed
from edgeengine.graph.manifest import encode, manifest_of
from edgeengine.graph.study import study
from edgeengine.io import make_source
from edgeengine.profiling import Candidate, chain_tensors
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
QUANTILES = (0.1, 0.5)
MEMORY_BYTES = 6_000_000_000  # for the sessions of a block: each takes SESSION_BYTES, and PACKED times its weights
SESSION_BYTES, PACKED = 1_000_000, 2
BURST_NS = 20_000_000  # time for the counted runs of a configuration in a round: one to three of them


class Table(msgspec.Struct, frozen=True):
    """`p10_ns` and `p50_ns` list the configurations in the order of `configurations`; `machine` says what they hold for.

    The search is replayed over `p10_ns`: what else ran on the machine only adds to a latency, to each by chance, and the least
    of hundreds of medians would be the luckiest. `drift` is the slowest block over the fastest, less 1, as taken out of both.
    """

    model: str
    machine: dict[str, object]
    segments: int
    subgraphs: tuple[SubgraphSpec, ...]
    processors: tuple[Processor, ...]
    batches: tuple[int, ...]
    p10_ns: tuple[int, ...]
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
        tensors[batch] = chain_tensors(bundle, inputs, providers[processors[0].provider], processors[0])
    providers[processors[0].provider].close()
    empty = Table(name, machine(), bundle.manifest.segments, bundle.manifest.subgraphs, processors, tuple(shapes), (), (), 0.0)
    (p10_ns, p50_ns), drift = _in_passes(bundle, empty.configurations, tensors, providers)
    return msgspec.structs.replace(empty, p10_ns=p10_ns, p50_ns=p50_ns, drift=drift)


def _cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else tuple(range(os.cpu_count() or 1))


def _in_passes(
    bundle: Bundle, every: Sequence[Configuration], tensors: dict[int, Tensors], providers: dict[str, Provider]
) -> tuple[list[tuple[int, ...]], float]:
    """QUANTILES of each in nanoseconds (the median over passes), and the drift between blocks that was taken out."""
    rng = np.random.default_rng(0)
    whole = bundle.manifest.whole
    anchors = [i for i, c in enumerate(every) if c.subgraph is whole]
    rest = [i for i, c in enumerate(every) if c.subgraph is not whole]
    held = statistics.fmean(c.subgraph.weight_bytes for c in every) * PACKED + SESSION_BYTES
    count = math.ceil(len(rest) * held / MEMORY_BYTES)
    blocks = [block for _ in range(PASSES) for block in np.array_split(rng.permutation(rest), count)]
    measured = []
    for block in blocks:
        chosen = [every[int(i)] for i in (*anchors, *block)]
        measured.append(_in_turn(bundle, chosen, tensors, providers, SECONDS / len(blocks), rng))
        for provider in providers.values():
            provider.close()
    of_anchors = np.array([m[:, : len(anchors)] for m in measured])
    slowdowns = np.median(of_anchors / np.median(of_anchors, axis=0), axis=2)
    passes = np.empty((PASSES, len(QUANTILES), len(every)))
    for number, (block, quantiles, slower) in enumerate(zip(blocks, measured, slowdowns, strict=True)):
        passes[number // count][:, block] = quantiles[:, len(anchors) :] / slower[:, None]
    result = np.median(passes, axis=0)
    result[:, anchors] = np.median(of_anchors, axis=0)
    return [tuple(int(v) for v in row.round()) for row in result], float(slowdowns.max() / slowdowns.min() - 1)


def _in_turn(
    bundle: Bundle,
    chosen: Sequence[Configuration],
    tensors: dict[int, Tensors],
    providers: dict[str, Provider],
    seconds: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """QUANTILES of each in nanoseconds [quantiles, chosen].

    All in an order drawn anew each round, one uncounted run before the counted ones.
    """
    clock = time.perf_counter_ns
    samples: list[list[int]] = [[] for _ in chosen]
    loaded = [
        providers[c.processor.provider].load(bundle, Candidate(bundle, c.subgraph, c.processor).step, c.processor) for c in chosen
    ]

    def visit(i: int) -> None:
        run, feeds = loaded[i].run, tensors[chosen[i].batch]
        begun = clock()
        run(feeds)
        for _ in range(max(1, min(3, BURST_NS // (clock() - begun)))):
            begun = clock()
            run(feeds)
            samples[i].append(clock() - begun)

    rounds, end = 0, time.monotonic() + seconds
    while rounds < LEAST_ROUNDS or time.monotonic() < end:
        order = [int(i) for i in rng.permutation(len(chosen))]
        for processor in dict.fromkeys(c.processor for c in chosen):
            mine = [i for i in order if chosen[i].processor == processor]
            run_pinned(processor, lambda mine=mine: [visit(i) for i in mine])  # type: ignore[misc]
        rounds += 1
    return np.array([np.quantile(s, QUANTILES) for s in samples]).T
