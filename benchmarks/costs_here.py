"""Costs fitted to whole models measured on this machine: are the parts of these models predicted?

`python -m benchmarks.costs_here [--json]`, two minutes. Every public model is measured whole and in PARTS parts on one core, back
to back; the costs of work by class are fitted to the whole models alone.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass

import msgspec
import numpy as np

from benchmarks.cuts import public_models
from benchmarks.harness import Row
from benchmarks.profiles import built, inputs_of
from edgeengine.devices import device_id, discover
from edgeengine.devices.providers import load_providers
from edgeengine.profiling import candidates_of, measure_back_to_back, reference_tensors
from edgeengine.spec.features import Features
from tools.profiles.costs import FAMILY_RIDGE, fit, work_of

SECONDS = 4.0  # of measuring, per model
TOO_SLOW = frozenset({"light_vgg19", "light_zfnet512"})
AIM = 20.0  # percent


@dataclass(frozen=True)
class Measured:
    model: str
    subgraph: str
    whole: bool
    features: Features
    p50_ms: float


def measure() -> list[Measured]:
    """Every subgraph of every model whose operators have cost rules, on the first core."""
    found = []
    processor = next(p for p in discover() if p.usable and p.threads == 1)
    for model in public_models():
        if model.name in TOO_SLOW:
            continue
        print(f"{model.name} …", file=sys.stderr, flush=True)
        with built(model) as bundle:
            providers = load_providers()
            tensors = {bundle.hash: reference_tensors(bundle, inputs_of(bundle))}
            rows = measure_back_to_back(candidates_of(bundle, [processor]), tensors, providers, device_id(), budget_s=SECONDS)
            for provider in providers.values():
                provider.close()
            for row in rows:
                spec = bundle.manifest.subgraph(row.subgraph)
                if spec.features is not None and row.latency.p50_ns:
                    whole = spec.name == bundle.manifest.whole.name
                    found.append(Measured(model.name, spec.name, whole, spec.features, row.latency.p50_ns / 1e6))
    return found


def errors(found: list[Measured]) -> list[float]:
    """Percent, of each part."""
    wholes, parts = ([m for m in found if m.whole is whole] for whole in (True, False))
    latency_ms = np.array([m.p50_ms for m in wholes])
    costs = fit(work_of([m.features for m in wholes]), latency_ms, FAMILY_RIDGE)
    predicted = work_of([m.features for m in parts]) @ costs
    return [100 * abs(p / m.p50_ms - 1) for p, m in zip(predicted, parts, strict=True)]


def run() -> list[Row]:
    """Rows for the table of `python -m benchmarks`."""
    found = measure()
    wholes = sum(m.whole for m in found)
    return [Row("parts predicted from whole models measured here", "%", errors(found), aim=AIM, note=f"{wholes} models")]


def main() -> None:
    found = measure()
    off = errors(found)
    if "--json" in sys.argv:
        print(json.dumps({"measured": msgspec.to_builtins(found), "errors_percent": off}, indent=1))
        return
    by_model: dict[str, list[float]] = {}
    for part, error in zip([m for m in found if not m.whole], off, strict=True):
        by_model.setdefault(part.model, []).append(error)
    for model, values in by_model.items():
        print(f"{model:24}{len(values):4} parts{statistics.median(values):8.1f} %")
    print(f"{'all':24}{len(off):4} parts{statistics.median(off):8.1f} % (aim {AIM:g})")


if __name__ == "__main__":
    main()
