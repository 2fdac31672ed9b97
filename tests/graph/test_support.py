"""Regions a provider supports: as large as can be, extractable, and none too small; checked by brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgeengine.graph import load_model
from edgeengine.graph.build import Writer
from edgeengine.graph.candidates import finest
from edgeengine.graph.study import Study, study
from edgeengine.graph.support import Support, Supported
from tests.graph.onnxes import model, node, session, value, weight, x_in
from tests.models import model_file

pytestmark = pytest.mark.usefixtures("in_process")
Save = Callable[..., Path]
TABLE = [Supported("Relu"), Supported("Sum"), Supported("MatMul")]


def seen_of(path: Path) -> Study:
    return study(load_model(path))


def kinds(seen: Study, support: Support, least: float = 0.0) -> list[list[str]]:
    return [[seen.flow.nodes[n].output[0] for u in r.units for n in seen.units[u].nodes] for r in support.regions(least)]


def test_regions_end_where_support_ends(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Exp", ["b"], ["c"]), node("Relu", ["c"], ["d"])]
    seen = seen_of(saved(model(nodes, [x_in("N", 4)], ["d"])))
    support = Support(seen, TABLE)
    assert kinds(seen, support) == [["a", "b"], ["d"]]
    assert support.reasons == {2: "Exp #2: Exp is not in the table"}
    segmentation, supported = support.segmentation(0)
    assert segmentation.segments == ((0, 1), (2,), (3,)) and supported == (True, False, True)


def test_a_region_does_not_reach_around_what_is_unsupported(saved: Save) -> None:
    """a -> Exp -> d and a -> d: a and d cannot be one subgraph, Exp would have to run in its middle."""
    nodes = [node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["c"]), node("Sum", ["a", "c"], ["d"])]
    seen = seen_of(saved(model(nodes, [x_in("N", 4)], ["d"])))
    assert kinds(seen, Support(seen, TABLE)) == [["a"], ["d"]]


def test_two_regions_never_wait_for_each_other(saved: Save) -> None:
    """p -> Exp -> s and r -> Exp -> q; {p, q} and {r, s} are each without a detour, and together a cycle."""
    nodes = [node("Relu", ["x"], ["p"]), node("Relu", ["z"], ["r"]), node("Exp", ["p"], ["e"]), node("Exp", ["r"], ["f"]),
             node("Sum", ["p", "f"], ["q"]), node("Sum", ["r", "e"], ["s"])]  # fmt: skip
    seen = seen_of(saved(model(nodes, [x_in("N", 4), x_in("N", 4, name="z")], ["q", "s"])))
    segmentation, supported = Support(seen, TABLE).segmentation(0)
    assert sum(len(s) for s in segmentation.segments) == 6 and sum(supported) == 3


def test_too_small_regions_are_left_out(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Exp", ["a"], ["b"]), node("MatMul", ["b", "w"], ["c"]), node("Relu", ["c"], ["d"])]
    seen = seen_of(saved(model(nodes, [x_in("N", 512)], ["d"], [weight("w", np.eye(512))])))
    support = Support(seen, TABLE)
    assert kinds(seen, support, 250_000) == [["c", "d"]]
    assert support.segmentation()[1] == (False, True)
    assert support.segmentation(1e12)[0].segments == ((0, 1, 2, 3),)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (Supported("Relu", dtypes=frozenset({"float16"})), "tensor 'x' is float32"),
        (Supported("Relu", opset=(18, 20)), "opset 17 is outside 18 to 20"),
        (Supported("Relu", ranks=(3, 4)), "tensor 'x' has rank 2"),
        (Supported("Relu", static=True), "tensor 'x' has no static shape"),
        (Supported("Relu", domain="com.microsoft"), "Relu is not in the table"),
    ],
)
def test_conditions_of_a_row(saved: Save, row: Supported, reason: str) -> None:
    path = saved(model([node("Relu", ["x"], ["y"])], [x_in("N", 4)], ["y"]))
    assert Support(seen_of(path), [row]).reasons == {0: f"Relu #0: {reason}"}
    # A second row for the same operator is another way to be supported.
    assert Support(seen_of(path), [row, Supported("Relu", dtypes=frozenset({"float32"}), ranks=(2, 2))]).reasons == {}


def test_static_shapes(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("NonZero", ["a"], ["n"]), node("Cast", ["n"], ["y"], to=TensorProto.FLOAT)]
    path = saved(model(nodes, [x_in(2, 4)], ["y"]))
    table = [Supported(op, static=True) for op in ("Relu", "NonZero", "Cast")]
    assert set(Support(seen_of(path), table).reasons) == {1, 2}


def test_bodies_count(saved: Save) -> None:
    then = onnx.helper.make_graph([node("Exp", ["h"], ["t"])], "then", [], [value("t", 1, None)])
    other = onnx.helper.make_graph([node("Relu", ["h"], ["e"])], "else", [], [value("e", 1, None)])
    nodes = [node("Relu", ["x"], ["h"]), node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    seen = seen_of(saved(model(nodes, [x_in("N", 4), value("c", TensorProto.BOOL, [])], ["y"])))
    assert Support(seen, [*TABLE, Supported("If")]).reasons == {1: "If #1: Exp is not in the table"}


def closes_a_cycle(seen: Study, groups: list[tuple[int, ...]]) -> bool:
    of = {u: k for k, g in enumerate(groups) for u in g}
    maker = {t: u for u, unit in enumerate(seen.units) for t in unit.writes}
    edges = {(of[maker[t]], of[u]) for u, unit in enumerate(seen.units) for t in unit.reads if t in maker}
    edges = {(a, b) for a, b in edges if a != b}
    left = set(of.values())
    while left:
        free = {k for k in left if not any(b == k and a in left for a, b in edges)}
        if not free:
            return True
        left -= free
    return False


@pytest.mark.parametrize("seed", range(30))
def test_no_two_regions_could_be_one(saved: Save, seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes, made = [], ["x"]
    for i in range(int(rng.integers(4, 13))):
        reads = list(dict.fromkeys(made[int(k)] for k in rng.integers(max(0, len(made) - 4), len(made), rng.integers(1, 4))))
        nodes.append(node("Sum" if rng.random() < 0.6 else "Mean", reads, [f"t{i}"]))
        made.append(f"t{i}")
    read = {t for n in nodes for t in n.input}
    seen = seen_of(saved(model(nodes, [x_in("N", 4)], [t for t in made if t not in read])))
    support = Support(seen, TABLE)
    groups = [r.units for r in support.regions(0)]
    alone = [(u,) for u in support.reasons]
    assert sorted(u for g in (*groups, *alone) for u in g) == list(range(len(seen.units)))
    assert not closes_a_cycle(seen, [*groups, *alone])
    for a, b in itertools.combinations(groups, 2):
        joined = tuple(sorted((*a, *b)))
        touching = any(
            seen.units[u].writes & seen.units[v].reads for u, v in (*itertools.product(a, b), *itertools.product(b, a))
        )
        assert not touching or closes_a_cycle(seen, [g for g in (*groups, *alone) if g not in (a, b)] + [joined])


def test_a_real_model_in_regions_runs(tmp_path: Path) -> None:
    """The embedding model for a provider without MaxPool: the chain of segments still is the model."""
    seen = seen_of(model_file("embedding"))
    ops = {n.op_type for n in seen.flow.nodes}
    segmentation, supported = Support(seen, [Supported(op) for op in ops if op != "MaxPool"]).segmentation()
    assert 2 * sum(supported) - 1 <= len(supported) <= 2 * sum(supported) + 1 and sum(supported) >= 3
    trial = Writer(seen, tmp_path).write(segmentation, finest(len(segmentation.segments)))
    x = np.random.default_rng(0).standard_normal((1, 76, 32, 1)).astype(np.float32)
    tensors = {"input_1": x}
    for sub in trial.subgraphs:
        names = [o.name for o in sub.outputs]
        run = session(str(tmp_path / sub.file)).run(names, {i.name: tensors[i.name] for i in sub.inputs})
        tensors.update(zip(names, run, strict=True))
    whole = session(str(model_file("embedding"))).run(None, {"input_1": x})[0]
    np.testing.assert_array_equal(tensors[seen.flow.outputs[0]], whole)
