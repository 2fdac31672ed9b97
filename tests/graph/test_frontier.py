"""The choice of cuts: least bytes under balance, nested frontiers, clear refusals, and speed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.graph.dataflow import analyze
from edgeengine.graph.frontier import TENSOR_OVERHEAD_BYTES, Cuts, _shortest
from edgeengine.graph.load import load_model
from edgeengine.graph.units import group
from edgeengine.spec.tensor import TensorSpec
from tests.graph.onnxes import model, node, weight, x_in

Save = Callable[..., Path]


def chain(count: int) -> list[object]:
    return [node("Relu", ["x" if i == 0 else f"t{i - 1}"], [f"t{i}"]) for i in range(count)]


def cuts_of(path: Path, sizes: dict[str, int] | None = None, cost: float = 1.0) -> Cuts:
    flow = analyze(load_model(path))
    units = group(flow)
    specs = {t: TensorSpec(t, "float32", ((sizes or {}).get(t, 4),)) for t in flow.producer}
    return Cuts(flow, units, [cost] * len(units), specs)


def test_the_narrow_place_wins_within_the_balance(saved: Save) -> None:
    cuts = cuts_of(saved(model(chain(8), [x_in("N", 4)], ["t7"])), {f"t{i}": 1 if i == 4 else 1000 for i in range(8)})
    assert cuts.by_count(2).segments == ((0, 1, 2, 3, 4), (5, 6, 7))
    # One node of eight is too little for half a model, however narrow the place.
    narrow_first = cuts_of(saved(model(chain(8), [x_in("N", 4)], ["t7"])), {f"t{i}": 1 if i == 0 else 1000 for i in range(8)})
    assert len(narrow_first.by_count(2).segments[0]) > 1


def test_the_shortest_path_is_the_best_of_all() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        units, parts = 8, int(rng.integers(2, 5))
        cost = np.concatenate([[0], np.cumsum(rng.integers(0, 5, units))]).astype(float)
        weights = rng.integers(0, 50, units + 1).astype(float)
        limit = float(cost[-1] / parts * rng.choice([1.0, 1.5, 3.0]))
        every = [
            (sum(weights[p] for p in inner), inner)
            for inner in itertools.combinations(range(1, units), parts - 1)
            if max(np.diff(cost[[0, *inner, units]])) <= limit
        ]
        found = _shortest(cost, weights, parts, limit)
        assert (found is None) == (not every)
        if found is not None:
            assert sum(weights[p] for p in found) == min(every)[0] and max(np.diff(cost[[0, *found, units]])) <= limit


def test_crossing_tensors_are_counted_once_and_inputs_not_at_all(saved: Save) -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Neg", ["a"], ["b"]),
        node("Add", ["a", "x"], ["c"]),
        node("Add", ["b", "c"], ["y"]),
    ]
    cuts = cuts_of(saved(model(nodes, [x_in("N", 4)], ["y"])))
    assert [c.tensors for c in cuts.at] == [(), ("a",), ("a", "b"), ("b", "c"), ()]
    assert cuts.at[2].nbytes == 32 and TENSOR_OVERHEAD_BYTES > 0


def test_default_is_fewer_parts_for_a_small_model(saved: Save) -> None:
    path = saved(model(chain(12), [x_in("N", 4)], ["t11"]))
    assert len(cuts_of(path, cost=10.0).by_default().segments) == 1
    assert len(cuts_of(path, cost=1e6).by_default().segments) == 4


def test_frontiers_in_any_order_nest(saved: Save) -> None:
    cuts = cuts_of(saved(model(chain(6), [x_in("N", 4)], ["t5"])))
    assert cuts.by_tensors([["t3"], ["t1"]]).segments == ((0, 1), (2, 3), (4, 5))


@pytest.mark.parametrize(
    ("frontiers", "message"),
    [
        ([["t9"]], r"has no tensor 't9' to cut at; did you mean 't\d'"),
        ([["t5"]], "no node lies after the frontier t5"),
        ([["t1"], ["t1"]], "no node lies before the frontier t1 and after the one before it"),
        ([["x"]], "'x' is an input of the model"),
        ([["w"]], "'w' does not depend on the inputs"),
    ],
)
def test_frontiers_that_cannot_be(saved: Save, frontiers: list[list[str]], message: str) -> None:
    nodes = [*chain(6), node("Add", ["t5", "w"], ["y"])]
    nodes[-1:] = []
    path = saved(model([*nodes[:5], node("Add", ["t4", "w"], ["t5"])], [x_in("N", 4)], ["t5"], [weight("w", 1)]))
    with pytest.raises(UserError, match=message):
        cuts_of(path).by_tensors(frontiers)


def test_too_many_or_too_few_parts(saved: Save) -> None:
    cuts = cuts_of(saved(model(chain(3), [x_in("N", 4)], ["t2"])))
    with pytest.raises(UserError, match="4 parts are impossible, the most is 3: unit Relu #0 cannot be cut"):
        cuts.by_count(4)
    with pytest.raises(UserError, match="give 1 to 3"):
        cuts.by_count(0)


def test_a_thousand_nodes_are_quick(saved: Save) -> None:
    nodes = chain(1061)
    path = saved(model(nodes, [x_in("N", 4)], ["t1060"]))
    start = time.process_time()
    assert len(cuts_of(path).by_count(8).segments) == 8
    assert time.process_time() - start < 5
