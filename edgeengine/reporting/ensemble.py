"""Several runs of one workload that differ in their seed only: rows over all of them, and how sure the miss rates are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median

from edgeengine.reporting.rows import Row
from edgeengine.scheduling.job import OUTCOMES

CONFIDENCE = 0.95


def ensemble_rows(runs: Sequence[Sequence[Row]]) -> list[Row]:
    """A row per task over the rows of each run: counts added, percentiles the median of the runs', `max_ms` the greatest.

    `miss_low` and `miss_high` bound the miss rate at 95 % confidence.
    """
    return [_over(rows) for rows in zip(*runs, strict=True)]


def _over(rows: Sequence[Row]) -> Row:
    counts = {key: sum(_number(r[key]) for r in rows) for key in ("released", *OUTCOMES)}
    missed = [int(_number(r["released"]) - _number(r["met"])) for r in rows]
    low, high = miss_interval(missed, [int(_number(r["released"])) for r in rows])
    released = counts["released"]
    row: Row = {"task": rows[0]["task"], "criticality": rows[0]["criticality"], **counts}
    row |= {"miss_rate": sum(missed) / released if released else 0.0, "miss_low": low, "miss_high": high}
    for key in ("p50_ms", "p90_ms", "p99_ms"):
        known = [_number(r[key]) for r in rows if r[key] is not None]
        row[key] = median(known) if known else None
    row["max_ms"] = max((_number(r["max_ms"]) for r in rows if r["max_ms"] is not None), default=None)
    if "violations" in rows[0]:
        found = [_number(r["violations"]) for r in rows if r["violations"] is not None]
        row["violations"] = sum(found) if found else None
    if any("energy_mj" in r for r in rows):
        energies = [_number(e) for r in rows if (e := r.get("energy_mj")) is not None]
        row["energy_mj"] = sum(energies) / len(energies) if energies else None
    return row


def miss_interval(missed: Sequence[int], released: Sequence[int], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of the miss rate behind `missed` of `released` jobs in each run.

    Jobs of one run hang together, runs do not: Wilson's score interval (1927) at the effective number of jobs, which is the
    number of jobs over the design effect (Kish 1965; used so by Korn and Graubard, 1998), the variance between runs over that of
    independent jobs. The effect is at least 1; runs without any miss, or with nothing else, tell none.
    """
    jobs, runs = sum(released), len(released)
    if not jobs:
        return 0.0, 1.0
    rate = sum(missed) / jobs
    effect = 1.0
    if runs > 1 and 0 < rate < 1:
        residual = sum((m - rate * n) ** 2 for m, n in zip(missed, released, strict=True))
        between = residual * runs / (runs - 1) / jobs**2
        effect = max(between / (rate * (1 - rate) / jobs), 1.0)
    n, z = jobs / effect, NormalDist().inv_cdf(0.5 + confidence / 2)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    # At the ends the formula gives 0 and 1 but for rounding.
    return max(centre - half, 0.0) if rate > 0 else 0.0, min(centre + half, 1.0) if rate < 1 else 1.0


def _number(value: str | int | float | None) -> float:
    assert isinstance(value, int | float)
    return value
