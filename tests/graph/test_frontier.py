"""The choice of cuts: least bytes under balance, nested frontiers, clear refusals, and speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.graph.dataflow import analyze
from edgeengine.graph.frontier import Cuts
from edgeengine.graph.lattice import TENSOR_OVERHEAD_BYTES, Limits
from edgeengine.graph.load import load_model
from edgeengine.graph.units import group
from edgeengine.spec.tensor import TensorSpec
from tests.graph.onnxes import model, node, weight, x_in

Save = Callable[..., Path]


def chain(count: int) -> list[object]:
    return [node("Relu", ["x" if i == 0 else f"t{i - 1}"], [f"t{i}"]) for i in range(count)]


def cuts_of(path: Path, sizes: dict[str, int] | None = None, cost: float = 1.0, limits: Limits | None = None) -> Cuts:
    flow = analyze(load_model(path))
    units = group(flow)
    specs = {t: TensorSpec(t, "float32", ((sizes or {}).get(t, 4),)) for t in flow.producer}
    return Cuts(flow, units, [cost] * len(units), specs, limits)


def test_the_narrow_place_wins_within_the_balance(saved: Save) -> None:
    cuts = cuts_of(saved(model(chain(8), [x_in("N", 4)], ["t7"])), {f"t{i}": 1 if i == 4 else 1000 for i in range(8)})
    assert cuts.by_count(2).segments == ((0, 1, 2, 3, 4), (5, 6, 7))
    # One node of eight is too little for half a model, however narrow the place.
    narrow_first = cuts_of(saved(model(chain(8), [x_in("N", 4)], ["t7"])), {f"t{i}": 1 if i == 0 else 1000 for i in range(8)})
    assert len(narrow_first.by_count(2).segments[0]) > 1


def generated(seed: int, units: int) -> tuple[list[object], list[str], dict[str, int]]:
    """A random graph: nodes, outputs, elements of each tensor."""
    rng = np.random.default_rng(seed)
    nodes, made, sizes = [], ["x"], {}
    for i in range(units):
        reads = list(dict.fromkeys(made[int(k)] for k in len(made) - 1 - rng.integers(0, min(len(made), 5), rng.integers(1, 4))))
        outs = [f"t{i}"] if rng.random() < 0.8 else [f"t{i}", f"t{i}b"]
        nodes.append(node("Sum" if len(outs) == 1 else "Split", reads if len(outs) == 1 else reads[:1], outs))
        made += outs
        sizes |= {o: int(rng.integers(1, 5000)) for o in outs}
    read = {t for n in nodes for t in n.input}
    return nodes, [t for t in made if t not in read], sizes


class BruteForce:
    """Every downward-closed set of nodes and the tensors that cross it; no code shared with the search."""

    def __init__(self, nodes: list, sizes: dict[str, int], limits: Limits):  # type: ignore[type-arg]
        self.sizes, count = sizes, len(nodes)
        maker = {t: i for i, n in enumerate(nodes) for t in n.output}
        self.maker = maker
        needs = [{maker[t] for t in n.input if t in maker} for n in nodes]
        self.crossing: dict[frozenset[int], frozenset[str]] = {}
        for bits in range(1, 2**count - 1):
            chosen = frozenset(i for i in range(count) if bits >> i & 1)
            if all(needs[i] <= chosen for i in chosen):
                out = frozenset(t for i in range(count) if i not in chosen for t in nodes[i].input if maker.get(t, -1) in chosen)
                if (limits.tensors is None or len(out) <= limits.tensors) and (
                    limits.nbytes is None or sum(4 * sizes[t] for t in out) <= limits.nbytes
                ):
                    self.crossing[chosen] = out
        self.everything = frozenset(range(count))

    def most(self) -> int:
        longest: dict[frozenset[int], int] = {}
        for s in sorted(self.crossing, key=len):
            longest[s] = 1 + max((n for other, n in longest.items() if other < s), default=0)
        return 1 + max(longest.values(), default=0)

    def least_weight(self, parts: int, limit: float) -> float:
        """Over all chains whose parts have at most `limit` nodes."""

        def weight(before: frozenset[int], after: frozenset[int]) -> float:
            new = [t for t in self.crossing.get(after, ()) if self.maker[t] not in before]
            return sum(4 * self.sizes[t] + TENSOR_OVERHEAD_BYTES for t in new)

        best = {frozenset[int](): 0.0}
        for left in range(parts - 1, -1, -1):
            targets = self.crossing if left else {self.everything: frozenset[str]()}
            following: dict[frozenset[int], float] = {}
            for s, so_far in best.items():
                for t in targets:
                    if s < t and len(t) - len(s) <= limit:
                        following[t] = min(following.get(t, np.inf), so_far + weight(s, t))
            best = following
        return best.get(self.everything, np.inf)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_possible_is_found_and_nothing_is_lighter(saved: Save, seed: int) -> None:
    """Every refusal, and every choice, against all frontiers of a graph of up to twelve units."""
    count = 5 + seed % 8
    nodes, outputs, sizes = generated(seed, count)
    limits = [Limits(), Limits(tensors=1), Limits(tensors=2), Limits(nbytes=12000)][seed % 4]
    path = saved(model(nodes, [x_in("N", 4)], outputs))
    cuts, truth = cuts_of(path, sizes, limits=limits), BruteForce(nodes, sizes, limits)
    assert cuts.lattice.complete and len(cuts.lattice.frontiers) == len(truth.crossing) + 2
    assert cuts.most == truth.most()
    for parts in range(1, cuts.most + 1):
        segments = cuts.by_count(parts).segments
        assert len(segments) == parts
        if parts > 4 or len(truth.crossing) > 300:
            continue
        for slack in (1.0, 1.5, 2.0):
            try:
                segments = cuts.by_count(parts, slack=slack).segments
            except UserError:
                assert np.isinf(truth.least_weight(parts, max(1, slack * count / parts)))
                continue
            before, weight = frozenset[int](), 0.0
            for segment in segments:
                after = before | frozenset(segment)
                crossing = truth.crossing.get(after, frozenset())
                weight += sum(4 * sizes[t] + TENSOR_OVERHEAD_BYTES for t in crossing if truth.maker[t] not in before)
                before = after
            assert weight == pytest.approx(truth.least_weight(parts, max(1, slack * count / parts)), rel=1e-5)
    with pytest.raises(UserError, match=f"the most is {cuts.most}"):
        cuts.by_count(cuts.most + 1)


def test_as_few_parts_as_a_limit_allows(saved: Save) -> None:
    cuts = cuts_of(saved(model(chain(12), [x_in("N", 4)], ["t11"])))
    costs = np.array([1, 1, 4, 1, 1, 1, 3, 3, 1, 1, 1, 1], float)
    found = cuts.by_limit(costs, 5.0)
    assert found is not None and [sum(costs[list(s)]) <= 5 for s in found.segments] == [True] * 5
    assert cuts.by_limit(costs, 3.9) is None
    whole = cuts.by_limit(costs, 99.0)
    assert whole is not None and len(whole.segments) == 1


def test_a_tensor_read_by_several_later_parts_counts_once(saved: Save) -> None:
    """`a` crosses both cuts of three parts. Counted twice, cutting where it alone is alive would look no better."""
    nodes = [node("Relu", ["x"], ["a"]), *(node("Relu", [f"b{i - 1}" if i else "a"], [f"b{i}"]) for i in range(6)),
             node("Add", ["a", "b5"], ["y"])]  # fmt: skip
    cuts = cuts_of(saved(model(nodes, [x_in("N", 4)], ["y"])), {"a": 10_000} | {f"b{i}": 10 for i in range(6)})
    step = cuts.lattice.steps()
    first, second = (next(i for i, f in enumerate(cuts.lattice.frontiers) if f.size == n) for n in (2, 5))
    assert step[first][0] == 40_000 + 40 + 2 * TENSOR_OVERHEAD_BYTES  # a and b0
    assert step[second][first] == 40 + TENSOR_OVERHEAD_BYTES  # b3; a was handed over before


def test_parallel_branches_can_be_cut_across(saved: Save) -> None:
    """Two long branches: the light cuts lie between them, where no prefix of the file's order does."""
    nodes = [node("Relu", ["x"], ["s"])]
    for i in range(4):
        nodes += [node("Relu", [f"{b}{i - 1}" if i else "s"], [f"{b}{i}"]) for b in "ab"]
    nodes += [node("Add", ["a3", "b3"], ["y"])]
    cuts = cuts_of(saved(model(nodes, [x_in("N", 4)], ["y"])), limits=Limits(tensors=2))
    names = {f.tensors for f in cuts.lattice.frontiers}
    assert ("s", "a3") in names and ("s", "b3") in names and cuts.lattice.complete


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


def test_a_thousand_nodes_in_branches_are_quick(saved: Save) -> None:
    nodes, outputs, sizes = generated(1, 1061)
    path = saved(model(nodes, [x_in("N", 4)], outputs))
    start = time.process_time()
    assert len(cuts_of(path, sizes).by_count(8).segments) == 8
    assert time.process_time() - start < 5
