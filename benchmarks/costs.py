"""How well are latencies on described devices predicted? Public measurements, whole models left out of the fit.

`python -m benchmarks.costs [--json]`. Each architecture is left out in turn, with all its resolutions, sources and precisions;
the costs of every processor are fitted to the rest, by one setting for all. Per family: the absolute error of its predictions,
the share of measurements inside the stated 90 % interval (taken from the other models), and how often the faster is named of
two models on a processor whose measured latencies differ by over 25 %.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from benchmarks.harness import Row
from tools.profiles.families import Families, Measured, interval
from tools.profiles.tables import Tables

# (what, kind, runtime, precision, the bars for median and p90 of the absolute error in percent)
FAMILIES = (
    ("NPU float", "npu", "qnn_dlc", "float", 8, 30),
    ("NPU int8", "npu", "qnn_dlc", "int8", 10, 45),
    ("CPU ncnn", "cpu", "ncnn", "float", 10, 30),
    ("CPU ONNX Runtime int8", "cpu", "onnx", "int8", 12, 45),
    ("GPU Vulkan", "gpu", "ncnn-vulkan", "float", 14, 45),
)
APART = 1.25


@dataclass(frozen=True)
class Accuracy:
    """Percent, but for the counts."""

    what: str
    models: int
    measurements: int
    median: float
    p90: float
    covered: float
    ranked: float
    bars: tuple[float, float]


def accuracy(what: str, measured: Measured, bars: tuple[float, float]) -> Accuracy:
    ratios = measured.ratios
    known = np.isfinite(ratios)
    error = 100 * np.abs(1 / ratios[known] - 1)
    median, p90 = np.quantile(error, [0.5, 0.9])
    return Accuracy(what, len(set(measured.models)), int(known.sum()), float(median), float(p90),
                    100 * _covered(measured), 100 * _ranked(measured), bars)  # fmt: skip


def _covered(measured: Measured) -> float:
    """Of a model's measurements, inside the interval that the other models give; the mean over models."""
    names, ratios = np.array(measured.models), measured.ratios
    shares = []
    for name in dict.fromkeys(measured.models):
        low, high = interval(ratios[names != name])
        mine = ratios[names == name]
        mine = mine[np.isfinite(mine)]
        if len(mine):
            shares.append(((mine >= low) & (mine <= high)).mean())
    return float(np.mean(shares))


def _ranked(measured: Measured) -> float:
    """The share of pairs of models on one processor, over 25 % apart, of which the faster is named."""
    latency = measured.family.latency_ms
    predicted = latency / measured.ratios
    right = []
    for a, b in combinations(range(len(latency)), 2):
        both = np.isfinite(predicted[a]) & np.isfinite(predicted[b])
        apart = both & (np.maximum(latency[a] / latency[b], latency[b] / latency[a]) > APART)
        right += list(((latency[a] < latency[b]) == (predicted[a] < predicted[b]))[apart])
    return float(np.mean(right))


def measure() -> list[Accuracy]:
    families = Families(Tables())
    return [accuracy(what, families.of(kind, runtime, p), (m, p90)) for what, kind, runtime, p, m, p90 in FAMILIES]


def run() -> list[Row]:
    """Rows for the table of `python -m benchmarks`."""
    return [
        Row(f"predicted latency, {a.what}: median error", "%", [a.median], aim=a.bars[0],
            note=f"{a.measurements} measurements of {a.models} unseen models; p90 {a.p90:.0f} (aim {a.bars[1]}), "
                 f"in the 90 % interval {a.covered:.0f} %, ranked right {a.ranked:.1f} %")
        for a in measure()
    ]  # fmt: skip


def main() -> None:
    found = measure()
    if "--json" in sys.argv:
        print(json.dumps([asdict(a) for a in found], indent=1))
        return
    heads, widths = (
        ("models", "measured", "median %", "aim", "p90 %", "aim", "covered %", "ranked %"),
        (8, 10, 10, 5, 8, 5, 11, 10),
    )
    print(" " * 24 + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)))
    for a in found:
        print(
            f"{a.what:24}{a.models:8}{a.measurements:10}{a.median:10.1f}{a.bars[0]:5}{a.p90:8.1f}{a.bars[1]:5}"
            f"{a.covered:11.1f}{a.ranked:10.1f}"
        )


if __name__ == "__main__":
    main()
