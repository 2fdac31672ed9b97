"""Families of processors that price work alike: what was measured of each, by model, and the costs fitted to that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import numpy as np

from edgeengine.devices.costs import COSTS, SPREAD
from edgeengine.spec.device import Figure
from tools.profiles.costs import Array, Family, features_of, left_out, work_of
from tools.profiles.fits import figure
from tools.profiles.tables import FLOAT, INT8, Described, Row, Tables

# Runtimes that hand a model to the same compiler.
SAME = dict.fromkeys(("onnx", "qnn_dlc", "tflite", "precompiled_qnn_onnx", "qnn_context_binary"), "qnn")
# Names under which one architecture was measured by different people.
ALSO = {
    "mobilenet": "mobilenet_v1_1", "mobilenetv1_100": "mobilenet_v1_1", "mnasnet": "mnasnet1_0", "squeezenet": "squeezenet1_1",
    "shufflenet_v2": "shufflenet_v2_x1_0",
}  # fmt: skip
INTERVAL = (0.05, 0.95)

Processor = tuple[str, str, str, str]  # device, unit, threads, runtime


@dataclass(frozen=True)
class Measured:
    """A family with its names; `models` by architecture, so that what is left out is left out whole: every resolution,
    precision and source of it.
    """

    family: Family
    models: tuple[str, ...]
    processors: tuple[Processor, ...]

    @cached_property
    def costs(self) -> Array:
        return self.family.costs()

    @cached_property
    def ratios(self) -> Array:
        """Measured over predicted, [models, processors], each model left out of what predicts it."""
        return self.family.latency_ms / left_out(self.family, self.models)

    @cached_property
    def spread(self) -> tuple[float, float]:
        """What holds 90 % of them: each model counts as much as any other, however often it was measured."""
        return interval(self.ratios)


def interval(ratios: Array) -> tuple[float, float]:
    """What holds 90 % of ratios [models, processors], every model with the same weight.

    Of n models the next one is taken to be equally likely in each of the n + 1 gaps between them, as in conformal prediction
    (Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005): the outermost gaps have no end of their own.
    """
    known = np.isfinite(ratios)
    weight = (known / np.maximum(known.sum(axis=1, keepdims=True), 1))[known]
    order = np.argsort(values := ratios[known])
    share = (np.cumsum(weight[order]) - weight[order] / 2 + 0.5) / (weight.sum() + 1)
    low, high = np.interp(INTERVAL, share, values[order])
    return float(low), float(high)


def architecture(key: str) -> str:
    """`tv/resnet50@224`, `ncnn:resnet50_int8` and their like by one name."""
    name = re.sub(r"(_int8|_bn)$", "", key.split(":")[-1].split("/")[-1].split("@")[0])
    return ALSO.get(name, name)


class Families:
    """Families by (kind, runtime or compiler, precision), each fitted when first asked for."""

    def __init__(self, tables: Tables):
        self._tables = tables
        self._features = {r["model_key"]: features_of(r) for r in tables.features}
        self._made: dict[tuple[str, str, str], Measured] = {}

    def of(self, kind: str, runtime: str, precision: str) -> Measured:
        """Every processor of this kind under the runtimes that compile alike, at "float" or "int8"."""
        key = (kind, SAME.get(runtime, runtime) if kind == "npu" else runtime, precision)
        if key not in self._made:
            self._made[key] = self._measured(*key)
        return self._made[key]

    def figures(self, p: Described, precision: str, source: str) -> dict[str, Figure]:
        """The costs of a described processor as figures; none where too few models of known features were measured."""
        measured = self.of(p.kind, p.runtimes[precision], precision)
        key = (p.device, p.unit, p.measured_threads, p.runtimes[precision])
        if key not in measured.processors:
            return {}
        costs = measured.costs[:, measured.processors.index(key)]
        if not np.isfinite(costs).all():
            return {}
        found = {n: figure(c, unit, source, "fitted") for (n, unit), c in zip(COSTS.items(), costs, strict=True) if c > 0}
        low, high = measured.spread
        return found | {SPREAD: figure(1.0, "times", f"{source}; models left out in turn", "fitted", low, high)}

    def _measured(self, kind: str, runtime: str, precision: str) -> Measured:
        precisions = FLOAT if precision == "float" else INT8
        found: dict[tuple[str, Processor], list[float]] = {}
        for r in self._tables.measurements:
            compiled = SAME.get(r["runtime"], r["runtime"]) if kind == "npu" else r["runtime"]
            if (r["processor"], compiled) == (kind, runtime) and r["precision"] in precisions and r["batch"] in ("", "1"):
                model = self._model(r)
                if model and r["latency_ms"]:
                    key = (r["device"], r["unit"], r["threads"], r["runtime"])
                    found.setdefault((model, key), []).append(float(r["latency_ms"]))
        return _family(found, self._features)

    def _model(self, row: Row) -> str:
        """The key of its features, "" where they are not known."""
        return next((k for k in (row["model_key"], f"ncnn:{row['model']}") if k in self._features), "")


def _family(found: Mapping[tuple[str, Processor], list[float]], features: Mapping[str, object]) -> Measured:
    models, processors = sorted({m for m, _ in found}), sorted({p for _, p in found})
    latency_ms = np.full((len(models), len(processors)), np.nan)
    for (model, processor), values in found.items():
        latency_ms[models.index(model), processors.index(processor)] = median(values)
    work = work_of([features[m] for m in models])  # type: ignore[misc]
    return Measured(Family(work, latency_ms), tuple(architecture(m) for m in models), tuple(processors))
