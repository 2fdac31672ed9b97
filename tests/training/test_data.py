"""Examples, batches and schedules."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.training.data import Examples, batches, load_examples, split
from edgeengine.training.schedule import SCHEDULES, learning_rate


def numbered(count: int) -> Examples:
    return Examples({"x": np.arange(count, dtype=np.float32)}, np.arange(count))


@given(st.integers(2, 60), st.floats(0.01, 0.99), st.integers(0, 9))
def test_split_parts_every_example_once(count: int, holdout: float, seed: int) -> None:
    if not 0 < round(count * holdout) < count:
        with pytest.raises(UserError, match="cannot be split"):
            split(numbered(count), holdout, np.random.default_rng(seed))
        return
    kept, aside = split(numbered(count), holdout, np.random.default_rng(seed))
    assert sorted([*kept.label, *aside.label]) == list(range(count))
    assert len(aside) == round(count * holdout)
    np.testing.assert_array_equal(kept.inputs["x"], kept.label)


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 9))
def test_batches_are_full_and_repeat_no_example_within_a_pass(count: int, size: int, seed: int) -> None:
    stream = batches(numbered(count), size, np.random.default_rng(seed))
    full = min(size, count)
    for _ in range(2):
        seen = [int(v) for batch in islice(stream, count // full) for v in batch.label]
        assert len(seen) == len(set(seen)) == count // full * full


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 50), st.integers(0, 10))
def test_learning_rate_rises_to_its_peak_and_never_again(name: str, steps: int, warmup: int) -> None:
    rates = [learning_rate(name, 0.1, k, steps, min(warmup, steps)) for k in range(steps)]
    assert all(0 < r < 0.1 + 1e-12 for r in rates)
    peak = max(0, min(warmup, steps) - 1)
    assert rates[: peak + 1] == sorted(rates[: peak + 1]) and rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[peak] == pytest.approx(0.1)


def test_unknown_schedule() -> None:
    with pytest.raises(UserError, match="no schedule 'step'"):
        learning_rate("step", 0.1, 0, 10)


BAD: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "no label": ({"x": np.zeros(3)}, "no array 'label'"),
    "no input": ({"label": np.zeros(3)}, "no array 'x'"),
    "lengths": ({"x": np.zeros(3), "label": np.zeros(2)}, "different"),
    "nothing": ({"x": np.zeros((0, 2)), "label": np.zeros(0)}, "no length"),
    "fractions": ({"x": np.zeros(2), "label": np.array([0.5, 1])}, "no whole numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_data_that_does_not_fit_is_refused(case: str, tmp_path: Path) -> None:
    arrays, words = BAD[case]
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=words):
        load_examples(tmp_path / "d.npz", ["x"], "label", "int64")


def test_doubles_become_floats_and_labels_what_the_loss_wants(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)), label=np.array([0, 1, 2], np.int8), other=np.zeros(1))
    found = load_examples(tmp_path / "d.npz", ["x"], "label", "int64")
    assert found.inputs["x"].dtype == np.float32 and found.label.dtype == np.int64
    assert load_examples(tmp_path / "d.npz", ["x"], "label", "float32").label.dtype == np.float32
