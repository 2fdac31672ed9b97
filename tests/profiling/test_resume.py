"""What is measured again and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.profiling import candidates_of, measure_back_to_back, reference_tensors, resume, shapes_text
from edgeengine.spec import Latency, ProfileRow, SubgraphSpec, TensorSpec
from edgeengine.testing import FakeGpu, VirtualClock

X = np.ones((2, 3), np.float32)


class Case:
    def __init__(self, bundle: Bundle) -> None:
        clock = VirtualClock()
        gpu = FakeGpu(clock, count=2)
        self.candidates = candidates_of(bundle, gpu.discover((0,)))
        self.tensors = {bundle.hash: reference_tensors(bundle, {"x": X})}
        self.rows = measure_back_to_back(self.candidates, self.tensors, {gpu.name: gpu}, "here", budget_s=1, clock=clock)

    def left(self, rows: list[ProfileRow], width: float | None = 0.02) -> set[str]:
        left, known = resume(self.candidates, self.tensors, rows, width)
        assert {c.subgraph.name for c in left}.isdisjoint(r.subgraph for r in known)
        assert len(left) + len(known) == len(self.candidates)
        return {c.subgraph.name for c in left}


@pytest.fixture
def case(bundles: dict[str, Bundle]) -> Case:
    return Case(bundles["scale"])


def test_what_is_complete_is_not_measured_again(case: Case) -> None:
    assert case.left(case.rows) == set()
    assert case.left([]) == {c.subgraph.name for c in case.candidates}


@pytest.mark.parametrize(
    "change",
    [
        {"half_width": 0.5}, {"half_width": None}, {"versions": {"onnxruntime": "1"}}, {"shapes": "x=9x9"},
        {"verdict": "failed", "latency": Latency.none()}, {"ended": "predicted", "latency": Latency.none()},
        {"condition": "period:30"}, {"bundle": "other"}, {"ended": "predicted"}, {"options": (("speed", "9"),)},
    ],
)  # fmt: skip
def test_subgraph_is_measured_on_all_processors_if_one_row_is_not_complete(case: Case, change: dict[str, Any]) -> None:
    rows = [msgspec.structs.replace(r, **change) if i == 3 else r for i, r in enumerate(case.rows)]
    assert case.left(rows) == {case.rows[3].subgraph}


def test_lone_integers_are_part_of_what_is_measured() -> None:
    """A loop of 1,000 rounds is not the loop of one that was measured before."""
    inputs = (TensorSpec("x", "float32", (2,)), TensorSpec("n", "int64", ()), TensorSpec("b", "bool", (1,)))
    subgraph = SubgraphSpec("s", "s.onnx", 0, 1, inputs, (), 1)
    tensors = {"x": np.ones(2, np.float32), "n": np.array(1000), "b": np.array([True])}
    assert shapes_text(subgraph, tensors) == "b=1(1);n=scalar(1000);x=2"


def test_wide_rows_are_enough_where_no_width_is_asked(case: Case) -> None:
    rows = [msgspec.structs.replace(r, half_width=None, ended="budget") for r in case.rows]
    assert case.left(rows, width=None) == set()


def test_wrong_is_an_answer(case: Case) -> None:
    assert case.left([msgspec.structs.replace(r, verdict="wrong") for r in case.rows]) == set()
