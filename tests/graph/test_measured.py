"""Cutting by measured time, against a clock of our own: each node takes what a table says, each part an overhead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.graph import Limits, build_bundle
from edgeengine.graph.candidates import ranges
from edgeengine.spec.bundle import SubgraphSpec
from tests.graph.onnxes import model, node, weight, x_in

pytestmark = pytest.mark.usefixtures("in_process")
Save = Callable[..., Path]
MS = 1e6


class Clock:
    """A measure: a part takes the sum of its nodes' milliseconds (by output), and `overhead` more."""

    def __init__(self, ms: dict[str, float], overhead: float = 0.01):
        self.ms, self.overhead, self.measured = ms, overhead, 0

    def __call__(self, bundle: Bundle, subgraphs: Sequence[SubgraphSpec]) -> list[float]:
        count = bundle.manifest.segments
        assert [(s.start, s.stop) for s in subgraphs][:count] == [(k, k + 1) for k in range(count)]
        assert len(subgraphs) == (count + 1 if count > 1 else 1) and (subgraphs[-1].start, subgraphs[-1].stop) == (0, count)
        self.measured += len(subgraphs)
        return [self.of(bundle, s) * MS for s in subgraphs]

    def of(self, bundle: Bundle, subgraph: SubgraphSpec) -> float:
        proto = onnx.load(bundle.file(subgraph), load_external_data=False)
        return self.overhead + sum(self.ms[o] for n in proto.graph.node for o in n.output)


def chain(saved: Save, ms: Sequence[float]) -> tuple[Path, Clock]:
    """Equal nodes by any count of operations, unequal by the clock."""
    nodes = [node("MatMul", [f"t{i - 1}" if i else "x", "w"], [f"t{i}"]) for i in range(len(ms))]
    path = saved(model(nodes, [x_in("N", 4)], [f"t{len(ms) - 1}"], [weight("w", [[1, 0, 0, 0]] * 4)]))
    return path, Clock({f"t{i}": t for i, t in enumerate(ms)})


def parts_ms(bundle: Bundle, clock: Clock) -> list[float]:
    return [clock.of(bundle, s) for s in bundle.manifest.subgraphs if s.stop == s.start + 1]


def test_parts_balance_measured_time(saved: Save) -> None:
    path, clock = chain(saved, [10, 1, 1, 1, 1, 1, 1, 1, 1, 2])
    by_count = parts_ms(build_bundle(path, path.with_suffix(".edge"), parts=2), clock)
    told: list[str] = []
    measured = build_bundle(
        path, path.with_suffix(".edge"), parts=2, measure=clock, progress=lambda text, share: told.append(text)
    )
    assert max(parts_ms(measured, clock)) < max(by_count) and max(parts_ms(measured, clock)) <= 11.1
    assert any(t.startswith("measured ") and "of at most 64 subgraphs" in t for t in told)
    # Trials leave nothing behind.
    assert sorted(p.name for p in measured.path.glob("*.onnx")) == ["s0_1.onnx", "s0_2.onnx", "s1_2.onnx"]


@pytest.mark.parametrize(("limit", "parts"), [(100, 1), (11.3, 2), (10.1, 3), (5.5, 4)])
def test_no_part_is_longer_and_there_are_few(saved: Save, limit: float, parts: int) -> None:
    times = [4, 3, 2, 1, 2, 3, 4] if limit < 10 else [10, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    path, clock = chain(saved, times)
    bundle = build_bundle(path, path.with_suffix(".edge"), max_part_ms=limit, measure=clock)
    assert max(parts_ms(bundle, clock)) <= limit
    assert bundle.manifest.segments <= parts + 1


def test_a_unit_that_alone_takes_longer_is_named(saved: Save) -> None:
    path, clock = chain(saved, [1, 1, 7, 1, 1, 1])
    with pytest.raises(
        UserError, match=r"parts under 5 ms are impossible: unit MatMul #2 alone takes 7.01 ms .* most is 6 parts"
    ):
        build_bundle(path, path.with_suffix(".edge"), max_part_ms=5, measure=clock)
    assert not path.with_suffix(".edge").exists() and not list(path.parent.glob(".*"))


def test_the_budget_bounds_what_is_measured_and_kept(saved: Save) -> None:
    path, clock = chain(saved, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7])
    bundle = build_bundle(path, path.with_suffix(".edge"), parts=7, measure=clock, budget=16)
    assert clock.measured <= 16 and len(bundle.manifest.subgraphs) <= 16 and bundle.manifest.segments == 7
    with pytest.raises(UserError, match=r"no cut with parts under 9.5 ms among \d+ subgraphs measured \(at most 6\)"):
        build_bundle(path, path.with_suffix(".edge"), max_part_ms=9.5, measure=clock, budget=6)


@pytest.mark.parametrize(("segments", "budget"), [(1, 64), (3, 64), (10, 64), (11, 64), (40, 64), (100, 64), (5, 1)])
def test_ranges_are_the_finest_the_whole_and_as_many_more_as_fit(segments: int, budget: int) -> None:
    found = ranges(segments, budget)
    assert {(k, k + 1) for k in range(segments)} | {(0, segments)} <= set(found) and len(set(found)) == len(found)
    assert len(found) <= max(budget, segments + 1)
    if segments * (segments + 1) // 2 <= budget:
        assert len(found) == segments * (segments + 1) // 2


def test_limits_of_a_boundary(saved: Save) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Abs", ["a"], ["c"]), node("Exp", ["a"], ["d"]),
             node("Sum", ["b", "c", "d"], ["e"]), node("Tanh", ["e"], ["y"])]  # fmt: skip
    path = saved(model(nodes, [x_in("N", 4)], ["y"]))
    bundle = build_bundle(path, path.with_suffix(".edge"), parts=3, limits=Limits(tensors=1))
    assert all(len(s.inputs) == 1 for s in bundle.manifest.subgraphs)
    with pytest.raises(UserError, match="4 parts are impossible within the limits, the most is 3"):
        build_bundle(path, path.with_suffix(".edge"), parts=4, limits=Limits(tensors=1))
    with pytest.raises(UserError, match="the most is 1: unit"):
        build_bundle(path, path.with_suffix(".edge"), parts=2, limits=Limits(nbytes=4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_part_ms": 1.0}, "needs measuring"),
        ({"max_part_ms": 1.0, "parts": 2}, "not both"),
        ({"max_part_ms": 0.0, "measure": len}, "give a time above 0"),
        ({"budget": 0}, "at least 1"),
    ],
)
def test_ways_that_do_not_go_together(saved: Save, tmp_path: Path, options: dict[str, object], message: str) -> None:
    path, _ = chain(saved, [1, 1])
    with pytest.raises(UserError, match=message):
        build_bundle(path, tmp_path / "m.edge", **options)  # type: ignore[arg-type]
