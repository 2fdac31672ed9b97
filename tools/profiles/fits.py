"""Small fits behind the figures of a profile: a line through measurements, the spread of latencies, what company costs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np
from scipy import stats

from edgeengine.spec.device import Figure, Status, Tail
from tools.profiles.tables import Described, Row, Tables

DIGITS = 4  # of a fitted figure
LEAST_ROWS = 4  # that a line needs
ROUNDS = 50  # of reweighting
FOLDS = 20
MANY = 100
LEAST_OVERHEAD = 1e-3  # of the least latency: none at all is nobody's


def figure(value: float, unit: str, source: str, status: Status, low: float | None = None, high: float | None = None) -> Figure:
    return Figure(rounded(value), unit, source, status, _bound(low, value, min), _bound(high, value, max))


def _bound(bound: float | None, value: float, side) -> float | None:  # type: ignore[no-untyped-def]
    return None if bound is None else rounded(side(bound, value))


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def line(models: Sequence[str], gmacs: Sequence[float], ms: Sequence[float], source: str) -> tuple[Figure, Figure] | None:
    """(overhead in ms, rate in GMAC/s) with ms = overhead + 1000 gmacs / rate, of least absolute relative error.

    The bounds hold the overheads and rates at which 90 % of measurements of models that the line has not seen lie on it, by the
    errors on each of FOLDS groups of models with the line fitted to the others. None for too few measurements.
    """
    x, y = np.array(gmacs), np.array(ms)
    if len(x) < LEAST_ROWS or np.ptp(x) == 0:
        return None
    a, b = _least_relative(x, y)
    if b <= 0:
        return None
    fold = {m: k % FOLDS for k, m in enumerate(dict.fromkeys(models))}
    groups = np.array([fold[m] for m in models])
    errors = np.log(np.concatenate([_unseen(x, y, groups == k) for k in range(groups.max() + 1)]))
    low, high = np.exp(_nine_of_ten(errors))
    return (
        figure(a, "ms", source, "fitted", a * low, a * high),
        figure(1000 / b, "GMAC/s", source, "fitted", 1000 / b / high, 1000 / b / low),
    )


def _nine_of_ten(errors: np.ndarray) -> tuple[float, float]:
    """Bounds for one error more: Student's for a sample of a normal distribution where few are known, ranks where many are."""
    n = len(errors)
    if n >= MANY:
        low, high = np.quantile(errors, [0.05, 0.95])
        return float(low), float(high)
    half = stats.t.ppf(0.95, n - 1) * errors.std(ddof=1) * math.sqrt(1 + 1 / n)
    return float(errors.mean() - half), float(errors.mean() + half)


def _unseen(x: np.ndarray, y: np.ndarray, left_out: np.ndarray) -> np.ndarray:
    """Measured over expected of those left out of the fit."""
    a, b = _least_relative(x[~left_out], y[~left_out])
    return np.asarray(y[left_out] / np.maximum(a + b * x[left_out], 1e-9))


def _least_relative(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """(a, b) that minimise the sum of |(a + b x) / y - 1|, by iteratively reweighted least squares."""
    design = np.stack([1 / y, x / y], axis=1)
    a, b = 0.0, float(np.median(y / x))
    for _ in range(ROUNDS):
        weight = 1 / np.sqrt(np.maximum(np.abs(design @ (a, b) - 1), 1e-3))
        (a, b), *_ = np.linalg.lstsq(design * weight[:, None], weight, rcond=None)
        if a < (least := LEAST_OVERHEAD * y.min()):
            slope = design[:, 1] * weight
            a, b = least, float(slope @ (weight - least * design[:, 0] * weight) / (slope @ slope))
    return float(a), float(b)


def throughput(gmacs_per_s: Sequence[float], source: str) -> Figure:
    """The median over models, with what holds 90 % of them."""
    low, high = np.quantile(gmacs_per_s, [0.05, 0.95])
    return figure(median(gmacs_per_s), "GMAC/s", source, "fitted", float(low), float(high))


def tail(tables: Tables, status: Status) -> Tail:
    """Of MLPerf Mobile's single stream: medians over its logs, with what holds 90 % of them.

    A log has as many queries as fit into a minute, at least 1024 (MLPerf Mobile's rules).
    """
    kinds = ("min", "p90", "p99", "max", "runs")
    found: dict[str, list[float]] = {k: [] for k in kinds}
    rows = [r for r in tables.measurements if "p99=" in r["notes"]]
    for r in rows:
        about = {k: float(v) for k, v in re.findall(r"(mean|p90|p99)=([\d.]+)", r["notes"])}
        p50 = float(r["latency_ms"])
        values = (float(r["lat_min_ms"]), about["p90"], about["p99"], float(r["lat_max_ms"]))
        for k, value in zip(kinds, values, strict=False):
            found[k].append(value / p50)
        found["runs"].append(max(1024.0, 60_000 / about["mean"]))
    source = f"median of {len(rows)} logs on phones: {tables.cite(rows)}"
    source = source if status == "fitted" else f"guessed as on phones, {source}"
    return Tail(**{k: _spread(v, "runs" if k == "runs" else "times", source, status, k) for k, v in found.items()})


def _spread(values: Sequence[float], unit: str, source: str, status: Status, key: str) -> Figure:
    low, high = (float(q) for q in np.quantile(values, [0.05, 0.95]))
    return figure(median(values), unit, source, status, low if key in ("min", "runs") else max(low, 1.0), high)


def company(tables: Tables, device: str) -> Figure:
    """How many times as long a run takes beside another processor: the inverse of what both together deliver of their sum."""
    own = [r for r in tables.coexecution if r["device"] == device]
    rows = own or tables.coexecution
    factors = [1 / float(r["co_efficiency"]) for r in rows]
    source = f"CPU beside GPU, {len(rows)} models x chips: {tables.cite(list(rows))}"
    status: Status = "fitted" if own else "guessed"
    low, high = (float(q) for q in np.quantile(factors, [0.05, 0.95]))
    return figure(median(factors), "times", source if own else f"guessed as on Intel's: {source}", status, low, high)


def cores_together(tables: Tables, p: Described) -> Figure | None:
    """How many times as long a run takes for each further core that runs another: what threads lose, taken for lost to memory.

    If n threads are S times as fast as one, each of n cores at work is n / S times as slow as alone, 1 / (n - 1) of that for each
    neighbour. None where only one number of threads was measured.
    """
    runtime = p.runtimes.get("float")
    by_model: dict[str, dict[int, float]] = {}
    rows: list[Row] = []
    wanted = (p.device, "cpu", p.unit, runtime)
    for r in tables.measurements:
        if (r["device"], r["processor"], r["unit"], r["runtime"]) == wanted and r["threads"].isdigit():
            by_model.setdefault(r["model"], {})[int(r["threads"])] = float(r["latency_ms"])
            rows.append(r)
    losses = []
    for of_model in by_model.values():
        for one, most in [(a, b) for a, b in pairwise(sorted({1, max(of_model)})) if a in of_model]:
            losses.append(max((most * of_model[most] / of_model[one] - 1) / (most - 1), 0.0))
    if not losses:
        return None
    low, high = (1 + float(q) for q in np.quantile(losses, [0.05, 0.95]))
    source = f"what threads lose over {len(losses)} models, taken for lost to memory: {tables.cite(rows)}"
    return figure(1 + median(losses), "times", source, "derived", low, high)
