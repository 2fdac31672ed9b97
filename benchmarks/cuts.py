"""What cutting costs: whole, chosen chain, our 5-way cut and the equal-node-count 5-way cut, as ratios in one run.

Per model, on one processor and one thread: the chain the mapper chooses for the model alone; a forced 5-way cut of ours,
balanced by measured time; and the cut most tools make, an equal count of nodes per part. All four are run in turn,
again and again, so that drift hits them alike; the figures are medians over the whole's.
"""

from __future__ import annotations

import hashlib
import itertools
import json as json_module
import math
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.cli.measuring import Measurer
from edgeengine.devices import device_id
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.graph import build_bundle, load_model
from edgeengine.graph.candidates import Writer, finest
from edgeengine.graph.frontier import Segmentation
from edgeengine.graph.manifest import encode, manifest_of
from edgeengine.graph.study import study
from edgeengine.io import make_source
from edgeengine.planning.mapper import map_task
from edgeengine.profiling import Candidate, candidates_of, measure_back_to_back, measure_chains, reference_tensors
from edgeengine.spec import TensorSpec

PARTS = 5
SECONDS = 3.0


@dataclass(frozen=True)
class Model:
    """`shapes` and `fix` as `build_bundle` takes them."""

    name: str
    path: Path
    shapes: dict[str, tuple[int, ...]]
    fix: dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """Medians of one interleaved run; `chosen_parts` is 1 where the whole is the best chain."""

    model: str
    whole_ms: float
    chosen: float
    chosen_parts: int
    ours: float
    naive: float


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
        fix = {"sr": np.array(16000)} if short == "silero" else {}
        found.append(Model(short, path, shapes.get(short, {}), fix))
    light = Path(str(distribution("onnx").locate_file("onnx/backend/test/data/light")))
    found += [Model(f.stem, f, {}, {}) for f in sorted(light.glob("light_*.onnx"))]
    return found


def equal_node_counts(path: Path, folder: Path, model: Model) -> Bundle:
    """The cut most tools make: equal counts of nodes, wherever that falls; not verified, only timed."""
    from edgeengine.graph.fix import fitting, with_fixed

    original = load_model(path)
    with with_fixed(original, fitting(original, model.fix)) as fixed:
        seen = study(fixed, model.shapes)
        bounds = [round(k * len(seen.units) / PARTS) for k in range(PARTS + 1)]
        groups = [seen.units[a:b] for a, b in itertools.pairwise(bounds)]
        folder.mkdir()
        rank = {n: i for i, n in enumerate(seen.flow.order)}
        segments = tuple(tuple(sorted((n for u in g for n in u.nodes), key=rank.__getitem__)) for g in groups)
        trial = Writer(seen, folder).write(Segmentation(segments), finest(PARTS))
        manifest = manifest_of(original, trial)
    return Bundle(folder, hashlib.sha256(encode(manifest) + b"naive").hexdigest(), manifest)


def measure(model: Model, folder: Path, seconds: float = SECONDS) -> Row:
    """One model's row."""
    timer = Measurer({})
    options = {"shapes": model.shapes, "fix": model.fix}
    auto = build_bundle(model.path, folder / "auto.edge", **options)  # type: ignore[arg-type]
    ours = build_bundle(model.path, folder / "ours.edge", parts=PARTS, measure=timer, **options)  # type: ignore[arg-type]
    naive = equal_node_counts(model.path, folder / "naive", model)
    providers, processor = load_providers(), timer.processor
    specs = [TensorSpec(s.name, s.dtype, auto.manifest.shapes[s.name]) for s in auto.manifest.inputs]
    inputs = make_source("random:0", specs).read(0, 0)
    try:
        chosen = _chosen(auto, inputs, providers, timer, seconds)
        whole = [Candidate(auto, auto.manifest.whole, processor)]
        chains = [whole, chosen, _finest(ours, timer), _finest(naive, timer)]
        p50 = [latency.p50_ns for latency in measure_chains(chains, inputs, providers, budget_s=seconds)]
    finally:
        for provider in providers.values():
            provider.close()
    ratios = [ns / p50[0] for ns in p50]
    return Row(model.name, p50[0] / 1e6, ratios[1] if len(chosen) > 1 else 1.0, len(chosen), ratios[2], ratios[3])


def _chosen(bundle: Bundle, inputs: dict, providers: dict[str, Provider], timer: Measurer, seconds: float) -> list[Candidate]:  # type: ignore[type-arg]
    candidates = candidates_of(bundle, [timer.processor])
    tensors = reference_tensors(bundle, inputs)
    rows = measure_back_to_back(candidates, {bundle.hash: tensors}, providers, device_id(), budget_s=seconds / 2)
    latency = {(r.subgraph, r.processor): r.latency for r in rows}
    mapping = map_task(
        candidates, latency, bundle.manifest.segments,
        lambda chains: measure_chains(chains, inputs, providers, budget_s=seconds / 2),
    )  # fmt: skip
    return list(mapping.chain)


def _finest(bundle: Bundle, timer: Measurer) -> list[Candidate]:
    finest_parts = sorted((s for s in bundle.manifest.subgraphs if s.stop == s.start + 1), key=lambda s: s.start)
    return [Candidate(bundle, s, timer.processor) for s in finest_parts]


def geometric_mean(values: Iterable[float]) -> float:
    """Over values floored at 1e-3: an overhead can be measured negative."""
    logs = [math.log(max(v, 1e-3)) for v in values]
    return math.exp(sum(logs) / len(logs))


def document(rows: list[Row]) -> dict[str, object]:
    """What --json prints."""
    ours, naive = geometric_mean(r.ours - 1 for r in rows), geometric_mean(r.naive - 1 for r in rows)
    return {
        "rows": [r.__dict__ for r in rows],
        "geomean_ratio": {
            "chosen": geometric_mean(r.chosen for r in rows),
            "ours": geometric_mean(r.ours for r in rows),
            "naive": geometric_mean(r.naive for r in rows),
        },
        "geomean_overhead": {"ours": ours, "naive": naive, "ours_over_naive": ours / naive},
    }


def main(json: bool = False, only: list[str] | None = None) -> dict[str, object]:
    """Measure every public model (or those named `only`) and print a line each, or one JSON document."""
    rows = []
    if not json:
        print(f"{'model':22}{'whole ms':>10}{'chosen':>9}{'parts':>6}{'ours x5':>9}{'naive x5':>9}   (ratios to the whole)")
    for model in public_models():
        if only and model.name not in only:
            continue
        with tempfile.TemporaryDirectory(prefix="edgeengine-") as folder:
            row = measure(model, Path(folder))
        rows.append(row)
        if not json:
            print(
                f"{row.model:22}{row.whole_ms:10.3f}{row.chosen:9.3f}{row.chosen_parts:6}{row.ours:9.3f}{row.naive:9.3f}",
                flush=True,
            )
    found = document(rows)
    if json:
        print(json_module.dumps(found, indent=1))
    else:
        print("geometric means:", found["geomean_ratio"], "overheads:", found["geomean_overhead"])
    return found


if __name__ == "__main__":
    main("--json" in sys.argv, [a for a in sys.argv[1:] if not a.startswith("-")] or None)
