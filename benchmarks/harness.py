"""What a benchmark reports, and how it is shown.

Nothing here measures. A row sets the engine's samples beside a peer's, taken alternately in the same run: on a shared machine
absolute times drift by a factor of two, the ratio to a peer does not.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import onnxruntime

import edgeengine


@dataclass(frozen=True)
class Row:
    """`aim` holds for percentile `aim_at`: at most that time, or at least that rate where `rate` is set.

    `peer_samples` is empty where there is no peer, or where it is missing (`note` says why).
    """

    name: str
    unit: str
    samples: Sequence[float]
    aim: float
    aim_at: int = 50
    rate: bool = False
    peer: str = ""
    peer_samples: Sequence[float] = ()
    note: str = ""

    def at(self, percent: int) -> float:
        return quantile(self.samples, percent, self.rate)

    def peer_at(self, percent: int) -> float | None:
        return quantile(self.peer_samples, percent, self.rate) if self.peer_samples else None

    @property
    def ratio(self) -> float | None:
        """Our median over the peer's."""
        theirs = self.peer_at(50)
        return self.at(50) / theirs if theirs else None

    @property
    def met(self) -> bool:
        value = self.at(self.aim_at)
        return value >= self.aim if self.rate else value <= self.aim


def quantile(samples: Sequence[float], percent: int, rate: bool = False) -> float:
    """The value that `percent` of the samples keep: nearest rank from the good end, so a rate's p99 is a low one."""
    ordered = sorted(samples, reverse=rate)
    return ordered[round((len(ordered) - 1) * percent / 100)]


def document(rows: Sequence[Row]) -> dict[str, object]:
    """The JSON form: {"machine": {…}, "rows": [{name, unit, n, p50, p90, p99, best, aim, …}, …]}."""
    return {"machine": machine(), "rows": [_as_dict(r) for r in rows]}


def machine() -> dict[str, object]:
    """What the figures hold for."""
    return {
        "cores": cores(),
        "python": platform.python_version(),
        "python_optimized": "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "onnxruntime": onnxruntime.__version__,
        "numpy": numpy.__version__,
        "edgeengine": edgeengine.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _as_dict(row: Row) -> dict[str, object]:
    return {
        "name": row.name, "unit": row.unit, "n": len(row.samples),
        "p50": row.at(50), "p90": row.at(90), "p99": row.at(99), "best": row.at(0),
        "aim": row.aim, "aim_at": f"p{row.aim_at}", "met": row.met,
        "peer": row.peer, "peer_p50": row.peer_at(50), "peer_p90": row.peer_at(90), "peer_p99": row.peer_at(99),
        "peer_best": row.peer_at(0), "ratio": row.ratio, "note": row.note,
    }  # fmt: skip


COLUMNS = ("", "unit", "n", "p50", "p90", "p99", "best", "aim", "met", "beside", "p50", "p90", "p99", "best", "ratio")
TEXT_COLUMNS = {0, 1, 7, 9}  # aligned to the left


def table(rows: Sequence[Row]) -> str:
    """Plain text, one line per row, notes below. `ratio` is our median over the peer's."""
    lines = [COLUMNS, *(_cells(r) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    text = [
        "  ".join(c.ljust(w) if i in TEXT_COLUMNS else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    ]
    notes = [f"{r.name}: {r.note}" for r in rows if r.note]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:], *notes])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name, row.unit, str(len(row.samples)), *(_number(row.at(p)) for p in (50, 90, 99, 0)),
        f"p{row.aim_at} {'>=' if row.rate else '<='} {row.aim:,.0f}", "yes" if row.met else "NO",
        row.peer, *(_number(row.peer_at(p)) for p in (50, 90, 99, 0)), f"{row.ratio:.2f}" if row.ratio is not None else "",
    )  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
