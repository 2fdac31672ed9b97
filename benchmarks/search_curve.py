"""The search under a budget, replayed over recorded tables: share measured against distance from the best.

`python -m benchmarks.search_curve [MODEL…] [--json]` replays; `--measure [MODEL…]` records the tables anew, in about a minute per
model. A chain is picked for each batch of a model: the distance is that of its total from the least there is, the worst of the
batches. Ours beside
- nearest neighbour: the same search, with the latency of the nearest measured configuration for a prediction;
- random: as many configurations, drawn blindly; its pick is the best chain among these.
All measure the whole model everywhere first, as anybody would.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.cuts import public_models
from benchmarks.harness import Row
from benchmarks.search_table import TOO_SLOW, Table, load_tables, record
from edgeengine.profiling import Configuration, Prediction, Predictor, Search, best_chain
from edgeengine.profiling.features import roofline_features
from edgeengine.spec import SubgraphSpec

SHARES = (0.02, 0.04, 0.07, 0.1, 0.15)
AT = 0.07
SEEDS = 3
AIM_DISTANCE, AIM_ERROR = 3.0, 10.0  # percent, at AT
LEAST_SPACE = 500


class NearestNeighbour:
    """The latency of the measured configuration that is nearest in the logarithms of its work, on the same processor."""

    def __init__(self, configurations: Sequence[Configuration], segments: Sequence[SubgraphSpec]):
        self._at = np.log1p(roofline_features(configurations, segments))
        self._processor = np.array([c.processor.name for c in configurations])

    def fit(self, measured: Mapping[int, float]) -> Prediction:
        known, latency_ns = np.fromiter(measured, np.int64), np.fromiter(measured.values(), np.float64)
        away = np.linalg.norm(self._at[:, None] - self._at[known], axis=2)
        away[self._processor[:, None] != self._processor[known]] = np.inf
        return Prediction(latency_ns[away.argmin(axis=1)], 0.1 * away.min(axis=1))


class Blind:
    """Expects nothing of anything, so that what is measured next is left to chance."""

    def __init__(self, configurations: Sequence[Configuration], segments: Sequence[SubgraphSpec]):
        self._count, self._rng = len(configurations), np.random.default_rng(len(configurations))

    def fit(self, measured: Mapping[int, float]) -> Prediction:
        return Prediction(np.full(self._count, np.inf), self._rng.random(self._count))


METHODS: dict[str, Callable[[Sequence[Configuration], Sequence[SubgraphSpec]], Predictor | NearestNeighbour | Blind]] = {
    "ours": Predictor,
    "nearest neighbour": NearestNeighbour,
    "random": Blind,
}


@dataclass(frozen=True)
class Point:
    """One search: `distance` of the pick from the best, `error` the median one of what was predicted (NaN: nothing was)."""

    model: str
    method: str
    share: float
    seed: int
    distance: float
    error: float


def replay(table: Table, method: str, share: float, seed: int) -> Point:
    """One search over a recorded table."""
    configurations = table.configurations
    segments = sorted((s for s in table.subgraphs if s.stop == s.start + 1), key=lambda s: s.start)
    truth = dict(enumerate(map(float, table.p50_ns)))
    recorded = {(c.subgraph.name, c.processor.name, c.batch): ns for c, ns in zip(configurations, table.p50_ns, strict=True)}
    search = Search(
        configurations, table.segments, METHODS[method](configurations, segments),
        lambda chosen: [recorded[c.subgraph.name, c.processor.name, c.batch] for c in chosen],
        int(share * len(configurations)), np.random.default_rng(seed),
    )  # fmt: skip
    predicted = search.run().median_ns
    distances = [
        best_chain(configurations, search.measured, table.segments, b)[1]
        / best_chain(configurations, truth, table.segments, b)[1]
        for b in table.batches
    ]
    errors = [abs(predicted[i] / ns - 1) for i, ns in truth.items() if i not in search.measured]
    error = statistics.median(errors) if np.isfinite(errors).all() else float("nan")
    return Point(table.model, method, share, seed, max(distances) - 1, error)


def curve(tables: Sequence[Table], shares: Sequence[float] = SHARES, seeds: int = SEEDS) -> list[Point]:
    """Every method at every share, from several seeds."""
    return [replay(t, m, share, seed) for t in tables for m in METHODS for share in shares for seed in range(seeds)]


def run() -> list[Row]:
    """The curve: a row per share and peer, a sample per model and seed; last the error of prediction at AT.

    Models of fewer than LEAST_SPACE configurations are left out, and named.
    """
    tables = load_tables()
    big = [t for t in tables if len(t.p50_ns) >= LEAST_SPACE]
    if not big:
        print("no recorded tables; python -m benchmarks.search_curve --measure makes them", file=sys.stderr)
        return []
    points = curve(big)
    note = f"replayed over {len(big)} recorded models, {SEEDS} seeds each"
    small = ", ".join(t.model for t in tables if t not in big)
    return [
        *(
            Row(
                f"search: distance from best, {share:.0%} measured", "%", _percent(points, "ours", share, "distance"),
                AIM_DISTANCE, peer=peer, peer_samples=_percent(points, peer, share, "distance"),
            )
            for share in SHARES for peer in METHODS if peer != "ours"
        ),
        Row(
            f"search: error of predictions, {AT:.0%} measured", "%", _percent(points, "ours", AT, "error"), AIM_ERROR,
            peer="nearest neighbour", peer_samples=_percent(points, "nearest neighbour", AT, "error"),
            note=note + (f"; too small: {small}" if small else ""),
        ),
    ]  # fmt: skip


def _percent(points: Sequence[Point], method: str, share: float, what: str) -> list[float]:
    return [100 * getattr(p, what) for p in points if (p.method, p.share) == (method, share)]


def table_text(points: Sequence[Point], tables: Sequence[Table]) -> str:
    """The curve of each model: the median distance over the seeds at each share, in percent; the error at AT."""
    shares = sorted({p.share for p in points})
    lines = [f"{'model':20}{'space':>6} {'method':18}" + "".join(f"{s:>8.0%}" for s in shares) + f"{'error':>8}"]
    for t in tables:
        for method in METHODS:
            mine = [p for p in points if (p.model, p.method) == (t.model, method)]
            cells = [statistics.median(p.distance for p in mine if p.share == share) for share in shares]
            error = statistics.median(p.error for p in mine if p.share == AT)
            shown = "-" if np.isnan(error) else f"{100 * error:.1f}"
            lines.append(f"{t.model:20}{len(t.p50_ns):6} {method:18}" + "".join(f"{100 * c:8.2f}" for c in cells) + f"{shown:>8}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_curve", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    parser.add_argument("--measure", action="store_true", help="record the tables anew instead of replaying them")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    given = parser.parse_args()
    if given.measure:
        for model in public_models():
            if model.name in (given.models or {model.name} - TOO_SLOW):
                table = record(model)
                print(f"{model.name}: {len(table.p50_ns)} configurations, drift {table.drift:.0%}", file=sys.stderr, flush=True)
        return
    tables = [t for t in load_tables() if not given.models or t.model in given.models]
    if not tables:
        parser.error("no recorded tables of these models; --measure makes them")
    points = curve(tables)
    if given.json:
        print(json.dumps([p.__dict__ for p in points], indent=1))
    else:
        print(table_text(points, tables))


if __name__ == "__main__":
    main()
