"""Can a profile be trusted? Two profiles taken one after the other, and a profile beside a plain loop.

Repeatability: the public models are profiled twice, sessions made anew. Where two processors differ by over 10 % in one profile,
the other must rank them the same; parts over 1 ms must agree within 10 % (median). Processors that are alike (core 0, core 1)
count as one, as they do for the planner: which of them a shared machine slows at the moment is no property of either.

Distortion: a subgraph is profiled among the others of its model and run in a plain loop, in turns; the median ratio must be
within 3 % of 1.
"""

from __future__ import annotations

import json as json_module
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean, median

from benchmarks.cuts import Model, public_models
from benchmarks.harness import Row
from edgeengine.bundle import Bundle
from edgeengine.devices import device_id, discover
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.threads import run_pinned
from edgeengine.graph import build_bundle
from edgeengine.io import make_source
from edgeengine.profiling import Candidate, candidates_of, equivalent, measure_back_to_back, reference_tensors
from edgeengine.spec import TensorSpec

PARTS = 3
SECONDS = 10.0  # of measuring, per model and profile
APART = 1.10  # processors whose medians differ by more must rank the same
LONG_NS = 1_000_000
PAIRS = 10  # profile and plain loop, in turns
LOOP_S = 0.25


@dataclass(frozen=True)
class Repeated:
    """Of one model: pairs of processors over 10 % apart, those ranked otherwise, and by how much parts differ (shares)."""

    model: str
    rows: int
    pairs: int
    otherwise: tuple[str, ...]
    long: tuple[float, ...]
    short: tuple[float, ...]


def repeat(bundle: Bundle, name: str, seconds: float = SECONDS) -> Repeated:
    tensors = {bundle.hash: reference_tensors(bundle, inputs_of(bundle))}
    one, two = (_profile(bundle, tensors, seconds) for _ in range(2))
    pairs, otherwise = 0, []
    for subgraph in {s for s, _ in one}:
        for a, b in combinations(sorted(p for s, p in one if s == subgraph), 2):
            ratios = [p[subgraph, a] / p[subgraph, b] for p in (one, two)]
            if max(*ratios, *(1 / r for r in ratios)) > APART:
                pairs += 1
                if (ratios[0] > 1) != (ratios[1] > 1):
                    otherwise.append(f"{subgraph}: {a} over {b} {ratios[0]:.2f}, then {ratios[1]:.2f}")
    apart = {k: abs(two[k] / one[k] - 1) for k in one}
    long = tuple(v for k, v in apart.items() if one[k] > LONG_NS)
    short = tuple(v for k, v in apart.items() if one[k] <= LONG_NS)
    return Repeated(name, len(one), pairs, tuple(otherwise), long, short)


def _profile(bundle: Bundle, tensors: dict[str, Tensors], seconds: float) -> dict[tuple[str, str], float]:
    """Median latency in ns by subgraph and processor, the mean over those that are alike."""
    processors = [p for p in discover() if p.usable and not p.emulated]
    with _providers() as providers:
        rows = measure_back_to_back(candidates_of(bundle, processors), tensors, providers, device_id(), budget_s=seconds)
    p50_ns = {(r.subgraph, r.processor): r.latency.p50_ns for r in rows}
    return {
        (s.name, "/".join(p.name for p in alike)): mean(p50_ns[s.name, p.name] for p in alike)
        for s in bundle.manifest.subgraphs
        for alike in equivalent(processors)
    }


def distortion(bundle: Bundle, pairs: int = PAIRS, seconds: float = LOOP_S) -> list[float]:
    """Profiled p50 over that of a plain loop, for the whole model on the first processor; one ratio per pair."""
    tensors = {bundle.hash: reference_tensors(bundle, inputs_of(bundle))}
    processor = next(p for p in discover() if p.usable)
    candidates = candidates_of(bundle, [processor])
    whole = Candidate(bundle, bundle.manifest.whole, processor)
    with _providers() as providers:
        run, feeds = providers[processor.provider].load(bundle, whole.step, processor).run, tensors[bundle.hash]
        found = []
        for i in range(pairs):
            plain: list[int] = []
            steps = [
                lambda plain=plain: run_pinned(processor, lambda: plain.extend(_plain(run, feeds, seconds))),
                lambda: measure_back_to_back(candidates, tensors, providers, device_id(), budget_s=seconds * len(candidates)),
            ]
            order = (0, 1) if i % 2 == 0 else (1, 0)
            done = {k: steps[k]() for k in order}
            profiled = next(r for r in done[1] if r.subgraph == whole.subgraph.name)
            found.append(profiled.latency.p50_ns / median(plain))
    return found


def _plain(run, feeds: Tensors, seconds: float) -> list[int]:  # type: ignore[no-untyped-def]
    """What anybody would write."""
    run(feeds)
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter_ns()
        run(feeds)
        found.append(time.perf_counter_ns() - begun)
    return found


def inputs_of(bundle: Bundle) -> Tensors:
    specs = [TensorSpec(s.name, s.dtype, bundle.manifest.shapes[s.name]) for s in bundle.manifest.inputs]
    return dict(make_source("random:0", specs).read(0, 0))


@contextmanager
def _providers() -> Iterator[dict[str, Provider]]:
    providers = load_providers()
    try:
        yield providers
    finally:
        for provider in providers.values():
            provider.close()


@contextmanager
def built(model: Model) -> Iterator[Bundle]:
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as folder:
        yield build_bundle(model.path, Path(folder) / "m.edge", parts=PARTS, shapes=model.shapes, fix=model.fix)


def run(only: list[str] | None = None) -> list[Row]:
    """Rows for the table of `python -m benchmarks`."""
    repeated, ratios = measure(only)
    long = [100 * v for r in repeated for v in r.long]
    otherwise = [o for r in repeated for o in r.otherwise]
    distorted = [100 * abs(median(r) - 1) for r in ratios.values()]
    return [
        Row("two profiles: processors ranked otherwise", "pairs", [len(otherwise)], aim=0,
            note=f"of {sum(r.pairs for r in repeated)} over 10 % apart; {'; '.join(otherwise) or 'none'}"),
        Row("two profiles: parts over 1 ms, apart", "%", long, aim=10, note=f"{len(long)} parts of {len(repeated)} models"),
        Row("profile beside a plain loop, apart", "%", distorted, aim=3, aim_at=99, note=f"{PAIRS} pairs for each model"),
    ]  # fmt: skip


def measure(only: list[str] | None = None, progress: bool = False) -> tuple[list[Repeated], dict[str, list[float]]]:
    repeated, ratios = [], {}
    for model in public_models():
        if only and model.name not in only:
            continue
        with built(model) as bundle:
            repeated.append(repeat(bundle, model.name))
            ratios[model.name] = distortion(bundle)
        if progress:
            print(_line(repeated[-1], ratios[model.name]), flush=True)
    return repeated, ratios


def _line(r: Repeated, ratios: list[float]) -> str:
    shares = [f"{100 * median(v):8.1f}" if v else "       -" for v in (r.long, r.short)]
    return f"{r.model:20}{r.rows:6}{r.pairs:12}{len(r.otherwise):11}{shares[0]}{shares[1]}{median(ratios):12.3f}"


def main(json: bool = False, only: list[str] | None = None) -> None:
    """A line per model, or one JSON document."""
    if not json:
        print(f"{'model':20}{'rows':>6}{'pairs > 10%':>12}{'otherwise':>11}{'> 1 ms %':>8}{'rest %':>8}{'/ plain loop':>12}")
    repeated, ratios = measure(only, progress=not json)
    if json:
        print(json_module.dumps({"repeated": [asdict(r) for r in repeated], "distortion": ratios}, indent=1))
    else:
        for r in repeated:
            print(*(f"{r.model} {o}" for o in r.otherwise), sep="\n", end="\n" if r.otherwise else "")


if __name__ == "__main__":
    main("--json" in sys.argv, [a for a in sys.argv[1:] if not a.startswith("-")] or None)
