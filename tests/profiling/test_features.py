"""The work of a range is that of its segments, whatever the cut."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.profiling import Configuration
from edgeengine.profiling.features import roofline_features
from tests.profiling.spaces import ONE, single, subgraphs

PARTS = subgraphs(8)
RANGE = {(s.start, s.stop): s for s in PARTS}
CALL, NODES, CONVOLUTIONS, WEIGHTS, MACS, TENSORS, CROSSING = 0, 1, 2, 5, 6, 7, 8


def features(a: int, b: int, batch: int = 1) -> np.ndarray:
    return roofline_features([Configuration(RANGE[a, b], ONE, batch)], single(PARTS))[0]


@given(st.lists(st.integers(0, 8), min_size=3, max_size=3, unique=True).map(sorted), st.integers(1, 8))
def test_a_range_is_the_sum_of_its_pieces_but_for_the_call_and_what_crosses(cut: list[int], batch: int) -> None:
    a, b, c = cut
    whole, pieces = features(a, c, batch), features(a, b, batch) + features(b, c, batch)
    np.testing.assert_allclose(whole[NODES:CROSSING], pieces[NODES:CROSSING])
    assert whole[CALL] == 1
    assert whole[CROSSING] == batch * sum(t.nbytes or 0 for t in (*RANGE[a, c].inputs, *RANGE[a, c].outputs))


def test_what_a_manifest_states_is_what_is_seen() -> None:
    seen = features(2, 6)
    assert (seen[NODES], seen[MACS]) == (RANGE[2, 6].nodes, RANGE[2, 6].macs)
    assert seen[CONVOLUTIONS] == RANGE[2, 6].op_counts["Conv"]


def test_a_batch_multiplies_arithmetic_and_tensors_only() -> None:
    one, four = features(0, 8), features(0, 8, 4)
    np.testing.assert_array_equal(four[[MACS, TENSORS, CROSSING]], 4 * one[[MACS, TENSORS, CROSSING]])
    np.testing.assert_array_equal(four[:MACS], one[:MACS])


def test_what_a_manifest_does_not_know_counts_zero() -> None:
    unknown = [msgspec.structs.replace(s, macs=None) for s in single(PARTS)]
    seen = roofline_features([Configuration(RANGE[0, 8], ONE)], unknown)[0]
    assert seen[MACS] == 0 and seen[WEIGHTS] > 0
