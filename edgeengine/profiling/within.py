"""Measure a share of the candidates of one bundle, chosen by the search under a budget, and predict the others.

A predicted row is marked so (`ended` "predicted", no samples): planning may rank by it, and measures the chain it chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from edgeengine.devices.providers.base import Tensors
from edgeengine.errors import UserError
from edgeengine.profiling.back_to_back import BACK_TO_BACK
from edgeengine.profiling.budgeted import Search, equivalent
from edgeengine.profiling.candidate import Candidate, shapes_text
from edgeengine.profiling.conditions import timestamp, versions
from edgeengine.profiling.features import Configuration
from edgeengine.profiling.predictor import Predictor
from edgeengine.spec import Latency, Manifest, Processor, ProfileRow
from edgeengine.spec.profile import PREDICTED, QUANTILES

NORMAL_95 = 1.96  # standard deviations on either side that hold 95 % of a normal distribution

Key = tuple[str, str, int]  # subgraph, processor, batch
# measure(candidates, tensors by bundle hash, seconds) -> a row each: `measure_back_to_back` with all else given.
MeasureRows = Callable[[Sequence[Candidate], dict[str, Tensors], float], Sequence[ProfileRow]]


def measure_within(
    candidates: Sequence[Candidate],
    tensors: Mapping[int, dict[str, Tensors]],
    measure: MeasureRows,
    device: str,
    *,
    share: float,
    seconds: float,
    rng: np.random.Generator,
) -> list[ProfileRow]:
    """Measure at most `share` (0..1) of the configurations for about `seconds` in all; a row for each, by batch, then candidate.

    `candidates` are of one bundle; `tensors` holds, by batch (a multiple of the manifest's), its chain's tensors by bundle hash.
    Processors that differ only in which unit they hold count as one: the first is measured, the others' rows are copies, marked
    as predicted. The latency of a predicted row has no samples, all its quantiles are the expected median, and `half_width` is
    half the 95 % interval of that. A processor on which nothing measured could run has no predicted rows.

    Raises UserError for a share that does not reach the whole model everywhere, and where scikit-learn is not installed.
    """
    bundle, manifest = candidates[0].bundle, candidates[0].bundle.manifest
    measured_as = {p.name: group[0].name for group in equivalent(_processors(candidates)) for p in group}
    distinct = [c for c in candidates if measured_as[c.processor.name] == c.processor.name]
    configurations = [Configuration(c.subgraph, c.processor, batch) for batch in tensors for c in distinct]
    budget = _budget(share, configurations, manifest)
    rows: dict[Key, ProfileRow] = {}

    def medians(chosen: Sequence[Configuration]) -> list[float]:
        for batch in dict.fromkeys(c.batch for c in chosen):
            mine = [c for c in chosen if c.batch == batch]
            of_bundle = [Candidate(bundle, c.subgraph, c.processor) for c in mine]
            found = measure(of_bundle, tensors[batch], seconds * len(mine) / budget)
            rows.update(zip(map(_key, mine), found, strict=True))
        return [_median_ns(rows[_key(c)]) for c in chosen]

    segments = sorted((s for s in manifest.subgraphs if s.stop == s.start + 1), key=lambda s: s.start)
    search = Search(configurations, len(segments), Predictor(configurations, segments), medians, budget, rng)
    prediction = search.run()
    expected = dict(zip(map(_key, configurations), zip(prediction.median_ns, prediction.deviation), strict=True))
    result = []
    for batch in tensors:
        for c in candidates:
            key = (c.subgraph.name, measured_as[c.processor.name], batch)
            row = rows.get(key)
            if row is None and not math.isfinite(expected[key][0]):
                continue
            row = row or _predicted(c, tensors[batch][bundle.hash], device, *expected[key])
            twin = row.processor != c.processor.name
            result.append(msgspec.structs.replace(row, processor=c.processor.name, ended=PREDICTED) if twin else row)
    return result


def _processors(candidates: Sequence[Candidate]) -> list[Processor]:
    return list({c.processor.name: c.processor for c in candidates}.values())


def _key(configuration: Configuration) -> Key:
    return configuration.subgraph.name, configuration.processor.name, configuration.batch


def _budget(share: float, configurations: Sequence[Configuration], manifest: Manifest) -> int:
    whole, every = sum(c.subgraph.name == manifest.whole.name for c in configurations), len(configurations)
    budget = int(share * every) if 0 < share <= 1 else 0
    if budget < whole:
        raise UserError(
            f"{manifest.name}: a share of {share:g} of {every} configurations does not reach the whole model, {whole} times; "
            f"give {math.ceil(100 * whole / every) / 100:g} to 1, or more parts"
        )
    return budget


def _median_ns(row: ProfileRow) -> float:
    """Infinite for what could not be run or answers wrong: no chain takes it."""
    return row.latency.p50_ns if row.usable else math.inf


def _predicted(candidate: Candidate, tensors: Tensors, device: str, median_ns: float, deviation: float) -> ProfileRow:
    return ProfileRow(
        bundle=candidate.bundle.hash,
        device=device,
        processor=candidate.processor.name,
        subgraph=candidate.subgraph.name,
        shapes=shapes_text(candidate.subgraph, tensors),
        condition=BACK_TO_BACK,
        latency=Latency(n=0, quantiles_ns=(round(median_ns),) * len(QUANTILES)),
        first_run_ns=0,
        create_ns=0,
        resident_bytes=None,
        measured_at=timestamp(),
        versions=versions(),
        half_width=NORMAL_95 * float(deviation),
        ended=PREDICTED,
        options=candidate.processor.options,
    )
