"""What cutting costs: whole, chosen chain, our 5-way cut and the equal-node-count 5-way cut, as ratios in one run.

Per model, on one processor and one thread: the chain the mapper chooses for the model alone; a forced 5-way cut of ours,
balanced by measured time; and the cut most tools make, an equal count of nodes per part. All four, each with sessions of
its own, run in turn in one thread, in another order each round; a figure is the median over the rounds of a chain's time by
the whole's in the same round, so that drift hits both alike. Nothing is verified here: the tests do that.
"""

from __future__ import annotations

import hashlib
import itertools
import json as json_module
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from benchmarks import harness
from edgeengine.bundle import Bundle
from edgeengine.cli.measuring import Measurer
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import run_pinned
from edgeengine.graph import load_model
from edgeengine.graph.candidates import CANDIDATES, Range, Writer, finest, ranges
from edgeengine.graph.fix import fitting, with_fixed
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.load import Model as Source
from edgeengine.graph.manifest import encode, manifest_of
from edgeengine.graph.measured import Timer
from edgeengine.graph.study import Study, study
from edgeengine.io import make_source
from edgeengine.planning.mapper import map_task
from edgeengine.profiling import Candidate, candidates_of, reference_tensors
from edgeengine.spec import Latency, TensorSpec

PARTS = 5
# Seconds and rounds of the final run; of what leads to it, a share.
SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 1.2, 6, 400
SEARCH_SECONDS, SEARCH_ROUNDS = 0.25, 3
# Subgraphs measured for our cut; fewer of a model that takes so long that nobody would wait.
BUDGET, SLOW_BUDGET, SLOW_NS = CANDIDATES, 30, 20e6
# A run shorter than this begins with what the run before it left in the caches: one uncounted run comes first.
WARMED_NS = 5e6
# An overhead below this is none: two sessions of the same whole differ by as much.
NOISE = 0.005
AIM_CHOSEN_PERCENT, AIM_OF_NAIVE = 102, 0.5

Chain = Sequence[Candidate]


@dataclass(frozen=True)
class Model:
    """`shapes` and `fix` as `build_bundle` takes them."""

    name: str
    path: Path
    shapes: dict[str, tuple[int, ...]]
    fix: dict[str, np.ndarray]


@dataclass(frozen=True)
class Figures:
    """One interleaved run: the whole's median, and of each chain its time by the whole's, a number a round.

    `chosen_parts` is 1 where the whole is the best chain: a second session of it is then timed.
    """

    model: str
    whole_ms: float
    chosen_parts: int
    chosen: list[float]
    ours: list[float]
    naive: list[float]

    @property
    def line(self) -> str:
        chosen, ours, naive = (statistics.median(r) for r in (self.chosen, self.ours, self.naive))
        return f"{self.model:22}{self.whole_ms:10.3f}{chosen:9.3f}{self.chosen_parts:6}{ours:9.3f}{naive:10.3f}"


HEAD = f"{'model':22}{'whole ms':>10}{'chosen':>9}{'parts':>6}{'ours x5':>9}{'naive x5':>10}"


def public_models() -> list[Model]:
    """Those of the test environment that are installed here, and onnx's light nets."""
    from importlib.metadata import PackageNotFoundError, distribution

    from tests.models import MODELS

    shapes = {
        "silero": {"input": (1, 576), "state": (2, 1, 128)},
        "silero-op15": {"input": (1, 576)},
        "ocr-direction": {"x": (1, 3, 48, 192)},
        "ocr-detection": {"x": (1, 3, 320, 320)},
    }
    found = []
    for short, (package, file) in MODELS.items():
        try:
            path = Path(str(distribution(package).locate_file(file)))
        except PackageNotFoundError:
            continue
        fix = {"sr": np.array(16000)} if short.startswith("silero") else {}
        found.append(Model(short, path, shapes.get(short, {}), fix))
    light = Path(str(distribution("onnx").locate_file("onnx/backend/test/data/light")))
    found += [Model(f.stem, f, {}, {}) for f in sorted(light.glob("light_*.onnx"))]
    return found


class Cutter:
    """Writes bundles of one model, all with the same weights, for timing only."""

    def __init__(self, original: Source, seen: Study, folder: Path):
        self.original, self.seen = original, seen
        self.writer = Writer(seen, folder)

    def bundle(self, stem: str, segmentation: Segmentation, which: Sequence[Range] | None = None) -> Bundle:
        """The parts of a cut, or the ranges of segments given."""
        found = self.writer.write(segmentation, which or finest(len(segmentation.segments)), stem=stem)
        manifest = manifest_of(self.original, found)
        return Bundle(self.writer.folder, hashlib.sha256(encode(manifest) + stem.encode()).hexdigest(), manifest)

    def whole(self, stem: str) -> Bundle:
        return self.bundle(stem, Segmentation((self.seen.flow.order,)))

    def equal_node_counts(self) -> Bundle:
        """The cut most tools make: equal counts of nodes, wherever that falls."""
        units = self.seen.units
        bounds = [round(k * len(units) / PARTS) for k in range(PARTS + 1)]
        rank = {n: i for i, n in enumerate(self.seen.flow.order)}
        groups = ([n for unit in units[a:b] for n in unit.nodes] for a, b in itertools.pairwise(bounds))
        return self.bundle("naive", Segmentation(tuple(tuple(sorted(g, key=rank.__getitem__)) for g in groups)))


def measure(model: Model, folder: Path) -> Figures:
    """Choose, cut and time one model."""
    timer, providers = Measurer({}, seconds=SEARCH_SECONDS), load_providers()
    original = load_model(model.path)
    try:
        with with_fixed(original, fitting(original, model.fix)) as fixed:
            seen = study(fixed, model.shapes)
            cutter = Cutter(original, seen, folder)
            whole = cutter.whole("whole")
            shapes = whole.manifest.shapes
            specs = [TensorSpec(s.name, s.dtype, shapes[s.name]) for s in whole.manifest.inputs]
            inputs = make_source("random:0", specs).read(0, 0)
            chain = _parts(whole, timer)
            (once,) = rotate([chain], inputs, providers, SEARCH_SECONDS, SEARCH_ROUNDS)
            chosen = choose(cutter, inputs, providers, timer)
            budget = BUDGET if np.median(once) < SLOW_NS else SLOW_BUDGET
            cut = Timer(original, seen.cuts, cutter.writer, timer, budget).by_count(PARTS)
            chains = [chain, chosen, _parts(cutter.bundle("ours", cut), timer), _parts(cutter.equal_node_counts(), timer)]
        ns = rotate(chains, inputs, providers, SECONDS, LEAST_ROUNDS)
    finally:
        for provider in providers.values():
            provider.close()
    ratios = (ns[1:] / ns[0]).tolist()
    return Figures(model.name, float(np.median(ns[0])) / 1e6, len(chosen), *ratios)


def choose(cutter: Cutter, inputs: Tensors, providers: dict[str, Provider], timer: Measurer) -> Chain:
    """The chain the mapper takes, of all candidates of the default cut; the whole, where it takes that, as a session anew."""
    segmentation = cutter.seen.cuts.by_default()
    count = len(segmentation.segments)
    bundle = cutter.bundle("auto", segmentation, ranges(count, CANDIDATES))
    candidates = candidates_of(bundle, [timer.processor])
    tensors = reference_tensors(bundle, inputs)

    def latencies(chains: Sequence[Chain], seconds: float, least: int) -> list[Latency]:
        """Medians; each by its times over the first chain's in the same round, so that drift decides nothing."""
        ns = rotate(chains, tensors, providers, seconds, least)
        return [Latency.constant(round(float(np.median(ns[0]) * np.median(of / ns[0])))) for of in ns]

    alone = latencies([[c] for c in candidates], SEARCH_SECONDS, SEARCH_ROUNDS)
    latency = {(c.subgraph.name, c.processor.name): found for c, found in zip(candidates, alone, strict=True)}
    chain = map_task(candidates, latency, count, lambda chains: latencies(chains, SECONDS / 2, LEAST_ROUNDS)).chain
    return chain if len(chain) > 1 else _parts(cutter.whole("chosen"), timer)


def rotate(chains: Sequence[Chain], inputs: Tensors, providers: dict[str, Provider], seconds: float, least: int) -> np.ndarray:
    """Time of each chain in each round in nanoseconds, int64[chains, rounds]; in every round all run, in another order."""
    loaded = [[providers[c.processor.provider].load(c.bundle, c.step, c.processor) for c in chain] for chain in chains]
    rounds: list[list[int]] = []
    order = np.random.default_rng(0)

    def run(index: int) -> int:
        tensors = dict(inputs)
        begun = time.perf_counter_ns()
        for executable in loaded[index]:
            tensors.update(executable.run(tensors))
        return time.perf_counter_ns() - begun

    def body() -> None:
        first = [run(i) for i in range(len(loaded))]
        end = time.monotonic() + seconds
        while len(rounds) < least or (time.monotonic() < end and len(rounds) < MOST_ROUNDS):
            found = [0] * len(loaded)
            for i in order.permutation(len(loaded)):
                if first[i] < WARMED_NS:
                    run(i)
                found[i] = run(i)
            rounds.append(found)

    run_pinned(chains[0][0].processor, body)
    return np.array(rounds).T


def _parts(bundle: Bundle, timer: Measurer) -> Chain:
    return [Candidate(bundle, s, timer.processor) for s in sorted(bundle.manifest.subgraphs, key=lambda s: s.start)]


def overhead(ratios: Iterable[Iterable[float]]) -> float:
    """The geometric mean over models of (median ratio - 1), where less than the noise counts as the noise."""
    return statistics.geometric_mean(max(statistics.median(r) - 1, NOISE) for r in ratios)


def mean_ratio(ratios: Iterable[Iterable[float]]) -> float:
    """The geometric mean over models of the median ratio: knows no floor."""
    return statistics.geometric_mean(statistics.median(r) for r in ratios)


def summary(found: Sequence[Figures]) -> dict[str, float]:
    """Both ways to say how our cut compares with that of equal node counts over all models."""
    ours, naive = [f.ours for f in found], [f.naive for f in found]
    return {
        "chosen_worst": max(statistics.median(f.chosen) for f in found),
        "ours_ratio": mean_ratio(ours),
        "naive_ratio": mean_ratio(naive),
        "ours_overhead": overhead(ours),
        "naive_overhead": overhead(naive),
        "overhead_by_naive": overhead(ours) / overhead(naive),
        "overhead_by_naive_of_mean_ratios": (mean_ratio(ours) - 1) / (mean_ratio(naive) - 1),
    }


def measured(only: Sequence[str] = (), file: TextIO = sys.stdout) -> list[Figures]:
    """Measure every public model, or those named `only`, and print a line each."""
    found = []
    print(HEAD, "  (ratios to the whole)", file=file)
    for model in public_models():
        if only and model.name not in only:
            continue
        with tempfile.TemporaryDirectory(prefix="edgeengine-") as folder:
            found.append(measure(model, Path(folder)))
        print(found[-1].line, file=file, flush=True)
    return found


def run() -> list[harness.Row]:
    """Per model the chosen chain and our 5-way cut beside the naive one, in percent of the whole."""
    print(file=sys.stderr)
    found = measured(file=sys.stderr)
    rows = []
    for f in found:
        chosen, ours, naive = ([100 * r for r in ratios] for ratios in (f.chosen, f.ours, f.naive))
        allowed = 100 + AIM_OF_NAIVE * max(statistics.median(naive) - 100, 0)
        rows += [
            harness.Row(f"chosen chain, {f.model}", "% of whole", chosen, AIM_CHOSEN_PERCENT),
            harness.Row(f"{PARTS} parts, {f.model}", "% of whole", ours, allowed, peer="equal node counts", peer_samples=naive),
        ]
    mean = 100 * overhead(f.ours for f in found), 100 * overhead(f.naive for f in found)
    rows.append(
        harness.Row(
            f"{PARTS} parts, overhead",
            "% of whole",
            [mean[0]],
            AIM_OF_NAIVE * mean[1],
            peer="equal node counts",
            peer_samples=[mean[1]],
            note="geometric mean over the models",
        )
    )
    return rows


def main(json: bool = False, only: Sequence[str] = ()) -> None:
    """One JSON document on stdout, or a line for each model."""
    found = measured(only, sys.stderr if json else sys.stdout)
    if json:
        print(json_module.dumps({"rows": [f.__dict__ for f in found], "summary": summary(found)}, indent=1))
    else:
        print("\n".join(f"{name:34}{value:8.3f}" for name, value in summary(found).items()))


if __name__ == "__main__":
    main("--json" in sys.argv, [a for a in sys.argv[1:] if not a.startswith("-")])
