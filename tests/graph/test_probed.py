"""Cut at what a processor takes: its answer about the whole model decides, nodes without names included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.graph import build_bundle
from tests.graph.onnxes import assert_same_bits, model, node, protos, run_chain, run_source, weight, x_in

pytestmark = pytest.mark.usefixtures("in_process")
Save = Callable[..., Path]


def net(saved: Save) -> Path:
    """MatMul, Erf, MatMul of 262,144 multiply-accumulates each; no node has a name of its own."""
    w = weight("w", np.random.default_rng(0).standard_normal((512, 512)) / 30)
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Erf", ["a"], ["b"]), node("MatMul", ["b", "w"], ["y"])]
    return saved(model(nodes, [x_in("N", 512)], ["y"], [w]))


def leaves(*ops: str, suffix: str = "", reason: str = "no kernel") -> Callable[[Bundle], dict[str, str]]:
    """A processor that leaves these operators to another, and tells so by node name."""

    def left(bundle: Bundle) -> dict[str, str]:
        (whole,) = bundle.manifest.subgraphs
        proto = onnx.load(bundle.file(whole), load_external_data=False)
        names = [n.name for n in proto.graph.node]
        assert all(names) and len(names) == len(set(names))
        return {n.name + suffix: reason for n in proto.graph.node if n.op_type in ops} | {"Transpose_token_9": "inserted"}

    return left


@pytest.mark.parametrize("suffix", ["", "_token_12"])
def test_the_parts_are_what_it_takes_and_what_it_leaves(saved: Save, tmp_path: Path, suffix: str) -> None:
    told: list[str] = []
    path = net(saved)
    bundle = build_bundle(
        path, tmp_path / "m.edge", left=leaves("Erf", suffix=suffix), progress=lambda text, share: told.append(text)
    )
    parts = [s for s in bundle.manifest.subgraphs if s.stop == s.start + 1]
    assert [s.op_counts for s in parts] == [{"MatMul": 1}, {"Erf": 1}, {"MatMul": 1}]
    assert any("1 of 3 nodes are left; runs on the processor, another, the processor" in text for text in told)
    x = {"x": np.random.default_rng(1).standard_normal((2, 512)).astype(np.float32)}
    assert_same_bits(run_chain(bundle, x), run_source(path, x))


def test_taken_whole_is_one_part(saved: Save, tmp_path: Path) -> None:
    assert build_bundle(net(saved), tmp_path / "m.edge", left=leaves()).manifest.segments == 1


@pytest.mark.parametrize(("reason", "said"), [("no kernel", "no kernel"), ("", "it is left to another provider")])
def test_nothing_taken_is_infeasible_with_the_reasons(saved: Save, tmp_path: Path, reason: str, said: str) -> None:
    with pytest.raises(PlanInfeasible, match=f"takes no part of it: {said}") as e:
        build_bundle(net(saved), tmp_path / "m.edge", left=leaves("MatMul", "Erf", reason=reason))
    assert e.value.exit_code == 3
    assert not (tmp_path / "m.edge").exists()


def test_one_way_to_cut_at_a_time(saved: Save, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not both"):
        build_bundle(net(saved), tmp_path / "m.edge", left=leaves(), parts=2)


def test_free_dimensions_of_inputs_have_names_to_fix_them_by(saved: Save, tmp_path: Path) -> None:
    """Behind an operator of no known shape the second part's input has free dimensions that inference cannot name."""
    nodes = [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["f"], to=onnx.TensorProto.FLOAT), node("Relu", ["f"], ["y"])]
    bundle = build_bundle(saved(model(nodes, [x_in("N", 4)], ["y"])), tmp_path / "m.edge", at=[["f"]])
    for proto in protos(bundle).values():
        free = [d.dim_param for i in proto.graph.input for d in i.type.tensor_type.shape.dim if not d.HasField("dim_value")]
        assert all(free) and len(set(free)) == len(free)
