"""The search under a budget: what it picks, what it may spend, and that a prediction never passes for a measurement."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.devices.providers.base import Tensors
from edgeengine.errors import UserError
from edgeengine.profiling import (
    BACK_TO_BACK,
    HANDOVER_NS,
    PREDICTED,
    Candidate,
    Configuration,
    Prediction,
    Predictor,
    Search,
    best_chain,
    candidates_of,
    measure_within,
    shapes_text,
)
from edgeengine.spec import Latency, Processor, ProfileRow
from tests.profiling.spaces import ALL, NPU, ONE, OTHER, bundle, latency_ns, single, subgraphs, tensors


class Flat:
    """Expects the same of everything: all a search knows is then what it measured."""

    def __init__(self, count: int):
        self._count = count

    def fit(self, measured: Mapping[int, float]) -> Prediction:
        assert all(math.isfinite(ns) for ns in measured.values())
        return Prediction(np.full(self._count, 1e5), np.full(self._count, 0.5))


def space(segments: int, batches: Sequence[int] = (1,)) -> list[Configuration]:
    return [Configuration(s, p, b) for b in batches for p in (ONE, ALL) for s in subgraphs(segments)]


def by_hand(configurations: Sequence[Configuration], costs: Sequence[float], segments: int) -> float:
    """The least total over every way to cut and every way to place: by enumeration."""
    at = {(c.subgraph.start, c.subgraph.stop, c.processor.name): cost for c, cost in zip(configurations, costs, strict=True)}
    least = math.inf
    for count in range(segments):
        for cut in itertools.combinations(range(1, segments), count):
            pieces = list(itertools.pairwise((0, *cut, segments)))
            for names in itertools.product((ONE.name, ALL.name), repeat=len(pieces)):
                changes = sum(a != b for a, b in itertools.pairwise(names))
                total = sum(at[a, b, n] for (a, b), n in zip(pieces, names, strict=True)) + changes * HANDOVER_NS
                least = min(least, total)
    return least


@given(st.integers(1, 5), st.integers(0, 1000))
def test_the_best_chain_is_the_least_of_all_chains(segments: int, seed: int) -> None:
    configurations = space(segments)
    costs = [float(c) for c in np.random.default_rng(seed).integers(1_000, 200_000, len(configurations))]
    chain, total = best_chain(configurations, dict(enumerate(costs)), segments, 1)
    assert total == by_hand(configurations, costs, segments)
    stops = [configurations[i].subgraph.stop for i in chain]
    assert [0, *stops[:-1]] == [configurations[i].subgraph.start for i in chain] and stops[-1] == segments


@given(st.integers(2, 60), st.integers(0, 1000))
def test_a_search_stays_within_its_budget_and_is_never_worse_than_the_whole(budget: int, seed: int) -> None:
    configurations = space(6)
    costs = np.random.default_rng(seed).uniform(1e3, 2e5, len(configurations))
    number = {(c.subgraph.name, c.processor.name): i for i, c in enumerate(configurations)}
    asked: list[int] = []

    def measure(chosen: Sequence[Configuration]) -> list[float]:
        indices = [number[c.subgraph.name, c.processor.name] for c in chosen]
        asked.extend(indices)
        return [costs[i] for i in indices]

    search = Search(configurations, 6, Flat(len(configurations)), measure, budget, np.random.default_rng(seed))
    search.run()
    assert len(asked) == len(set(asked)) == min(budget, len(configurations))
    picked = search.chains()[1]
    assert set(picked) <= set(asked)
    total = best_chain(configurations, search.measured, 6, 1)[1]
    assert total <= min(costs[i] for i, c in enumerate(configurations) if c.subgraph.name == "s0_6")
    if budget >= len(configurations):
        assert total == by_hand(configurations, list(costs), 6)


def test_what_cannot_run_is_in_no_chain() -> None:
    configurations = space(4)
    fails = [c.processor == ALL and c.subgraph.stop > 2 for c in configurations]
    number = {(c.subgraph.name, c.processor.name): i for i, c in enumerate(configurations)}

    def measure(chosen: Sequence[Configuration]) -> list[float]:
        return [math.inf if fails[number[c.subgraph.name, c.processor.name]] else latency_ns(c) for c in chosen]

    search = Search(configurations, 4, Flat(len(configurations)), measure, 20, np.random.default_rng(0))
    search.run()
    assert search.chains()[1] and not any(fails[i] for i in search.chains()[1])


@pytest.mark.parametrize("seed", range(3))
def test_seven_percent_find_a_near_best_chain_that_changes_processors(seed: int) -> None:
    pytest.importorskip("sklearn", reason="the extra fit is not installed")
    configurations = space(24)
    costs = {(c.subgraph.name, c.processor.name): latency_ns(c) for c in configurations}
    truth = {i: latency_ns(c) for i, c in enumerate(configurations)}
    best, least = best_chain(configurations, truth, 24, 1)
    assert len({configurations[i].processor.name for i in best}) == 2
    search = Search(
        configurations, 24, Predictor(configurations, single(subgraphs(24))),
        lambda chosen: [costs[c.subgraph.name, c.processor.name] for c in chosen],
        round(0.07 * len(configurations)), np.random.default_rng(seed),
    )  # fmt: skip
    search.run()
    assert best_chain(configurations, search.measured, 24, 1)[1] <= 1.03 * least


MADE = bundle(8)


def measured_row(candidate: Candidate, feeds: dict[str, Tensors], failing: Sequence[Processor] = ()) -> ProfileRow:
    at = feeds[MADE.hash]
    fails = candidate.processor in failing
    batch = at[candidate.subgraph.inputs[0].name].shape[0]
    cost = round(latency_ns(Configuration(candidate.subgraph, candidate.processor, batch)))
    return ProfileRow(
        bundle=MADE.hash, device="here", processor=candidate.processor.name, subgraph=candidate.subgraph.name,
        shapes=shapes_text(candidate.subgraph, at), condition=BACK_TO_BACK, latency=Latency.constant(cost), first_run_ns=1,
        create_ns=1, resident_bytes=1, measured_at="then", versions={}, ended="width", verdict="failed" if fails else "ok",
    )  # fmt: skip


def within(processors: Sequence[Processor], share: float, batches: Sequence[int] = (1,), failing: Sequence[Processor] = ()):  # type: ignore[no-untyped-def]
    """(rows, candidates that were measured, seconds that were given)."""
    pytest.importorskip("sklearn", reason="the extra fit is not installed")
    asked: list[tuple[str, str, int]] = []
    given_s: list[float] = []

    def measure(chosen: Sequence[Candidate], feeds: dict[str, Tensors], seconds: float) -> list[ProfileRow]:
        batch = next(iter(feeds[MADE.hash].values())).shape[0]
        asked.extend((c.subgraph.name, c.processor.name, batch) for c in chosen)
        given_s.append(seconds)
        return [measured_row(c, feeds, failing) for c in chosen]

    feeds = {b: {MADE.hash: tensors(MADE, b)} for b in batches}
    rows = measure_within(
        candidates_of(MADE, processors), feeds, measure, "here", share=share, seconds=10.0, rng=np.random.default_rng(0)
    )  # fmt: skip
    return rows, asked, given_s


def test_predicted_rows_are_marked_and_measured_ones_left_alone() -> None:
    rows, asked, given_s = within([ONE, ALL], 0.25, (1, 4))
    assert len(asked) == len(set(asked)) == int(0.25 * 2 * 2 * 36) and sum(given_s) == pytest.approx(10.0)
    assert len(rows) == len({(r.subgraph, r.processor, r.shapes) for r in rows}) == 2 * 2 * 36
    measured = [r for r in rows if r.ended != PREDICTED]
    assert len(measured) == len(asked) and {r.ended for r in measured} == {"width"}
    for row in rows:
        if row.ended == PREDICTED:
            assert (row.latency.n, row.verdict) == (0, "unchecked") and row.latency.p50_ns > 0 and row.half_width > 0
    predicted = [r for r in rows if r.ended == PREDICTED]
    batch = {r.shapes: int(r.shapes.split("=")[1].split("x")[0]) for r in rows}
    by_name = {s.name: s for s in MADE.manifest.subgraphs}
    processor = {p.name: p for p in (ONE, ALL)}
    truth = [latency_ns(Configuration(by_name[r.subgraph], processor[r.processor], batch[r.shapes])) for r in predicted]
    assert np.median([abs(r.latency.p50_ns / t - 1) for r, t in zip(predicted, truth, strict=True)]) < 0.1


def test_cores_alike_count_as_one() -> None:
    rows, asked, _ = within([ONE, OTHER, ALL], 0.25)
    assert OTHER.name not in {name for _, name, _ in asked}
    of = {(r.subgraph, r.processor): r for r in rows}
    for s in MADE.manifest.subgraphs:
        assert of[s.name, OTHER.name].latency == of[s.name, ONE.name].latency
        assert of[s.name, OTHER.name].ended == PREDICTED


def test_nothing_is_predicted_for_a_processor_that_fails() -> None:
    rows, asked, _ = within([ONE, NPU], 0.3, failing=[NPU])
    on_npu = [r for r in rows if r.processor == NPU.name]
    assert {(r.subgraph, r.processor, 1) for r in on_npu} == {a for a in asked if a[1] == NPU.name}
    assert {r.verdict for r in on_npu} == {"failed"}


@pytest.mark.parametrize("share", [0.0, 0.01, 1.5, math.nan])
def test_a_share_that_measures_no_model_is_refused(share: float) -> None:
    with pytest.raises(UserError, match="share"):
        within([ONE, ALL], share)


def test_the_same_seed_measures_the_same() -> None:
    assert msgspec.json.encode(within([ONE, ALL], 0.2)[1]) == msgspec.json.encode(within([ONE, ALL], 0.2)[1])
