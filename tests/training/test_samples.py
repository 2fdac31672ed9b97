"""The sample store: fair, within its bytes, forgetful where asked, and the same after it was read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.training.samples import HELD, RUN, SampleSpec, SampleStore

SPEC = SampleSpec({"x": ((3,), "float32")}, classes=4)
streams = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["home", "work"])), max_size=150)


def store(capacity: int = 20, **changes: object) -> SampleStore:
    spec = SampleSpec({"x": ((3,), "float32")}, classes=4, **changes)  # type: ignore[arg-type]
    return SampleStore(spec, capacity * spec.bytes, seed=1)


def feed(into: SampleStore, stream: list[tuple[int, str]], start: int = 0) -> None:
    for i, (label, domain) in enumerate(stream, start):
        into.add({"x": np.full((1, 3), i, np.float32)}, np.array([label]), domain=domain)


@settings(deadline=None)
@given(streams)
def test_kept_samples_are_ones_that_came_and_the_counts_add_up(stream: list[tuple[int, str]]) -> None:
    kept = store()
    feed(kept, stream)
    slots = np.concatenate([kept.draw(99, np.random.default_rng(0)), kept.held_back()])
    found = kept.examples(slots)
    assert len(kept) == sum(kept.counts.values()) == len(slots) == len({*found.inputs["x"][:, 0]}) <= kept.capacity
    for x, label, slot in zip(found.inputs["x"], found.label, slots, strict=True):
        assert (label, kept.domain_of(int(slot))) == stream[int(x[0])]


@settings(deadline=None)
@given(streams)
def test_no_class_has_much_more_room_than_another_that_could_fill_it(stream: list[tuple[int, str]]) -> None:
    kept = store()
    feed(kept, stream)
    for part in kept._parts:
        came = {c: sum(n for (label, _), n in part.seen.items() if label == c) for c in range(4)}
        have = {c: sum(n for (label, _), n in part.sizes.items() if label == c) for c in range(4)}
        for a in range(4):
            for b in range(4):
                assert have[a] <= have[b] + 1 or have[b] == came[b]


@settings(deadline=None)
@given(streams, streams)
def test_a_store_read_back_goes_on_like_the_one_that_was_written(
    before: list[tuple[int, str]], after: list[tuple[int, str]]
) -> None:
    one, other = store(), store()
    feed(one, before)
    other.restore(one.tensors())
    for each in (one, other):
        feed(each, after, len(before))
        each.delete(range(0, 40, 3))
        feed(each, before, 1000)
    for name, array in one.tensors().items():
        np.testing.assert_array_equal(array, other.tensors()[name], err_msg=name)
    drawn = [each.draw(5, np.random.default_rng(3)) for each in (one, other)]
    np.testing.assert_array_equal(*drawn)


def test_what_is_kept_of_a_class_is_an_even_draw_of_all_that_came() -> None:
    taken = np.zeros(100)
    for seed in range(300):
        kept = SampleStore(SPEC, 20 * SPEC.bytes, seed)
        kept.add({"x": np.arange(100, dtype=np.float32).repeat(3).reshape(100, 3)}, np.zeros(100, np.int64), held_back=False)
        taken[kept.examples(kept.draw(99, np.random.default_rng(0))).inputs["x"][:, 0].astype(int)] += 1
    early, late = taken[:50].sum(), taken[50:].sum()  # 300 * 16 draws: 2400 each, a standard deviation of about 32
    assert abs(early - late) < 300


@settings(deadline=None)
@given(streams, st.sets(st.integers(0, 149)))
def test_deleted_samples_are_gone_from_the_store_and_its_bytes(stream: list[tuple[int, str]], numbers: set[int]) -> None:
    kept = store()
    feed(kept, stream)
    before = len(kept)
    assert kept.delete(numbers) == before - len(kept)
    tensors = kept.tensors()
    values = tensors["input:x"][:, 0].astype(int)
    assert not numbers & {int(v) for v, n in zip(values, tensors["number"], strict=True) if n >= 0}
    assert not tensors["input:x"][tensors["number"] < 0].any()
    assert kept.delete(numbers) == 0


def test_a_domain_can_be_deleted() -> None:
    kept = store()
    feed(kept, [(0, "home"), (1, "work")] * 8)
    assert kept.delete_domain("work") == 8 and kept.domains == ("home",)


def test_held_back_samples_come_in_runs_and_are_never_drawn() -> None:
    kept = store(40)
    kept.add({"x": np.arange(30, dtype=np.float32).repeat(3).reshape(30, 3)}, np.zeros(30, np.int64))
    held = set(kept.examples(kept.held_back()).inputs["x"][:, 0].astype(int))
    assert held == {i for i in range(30) if i % RUN >= RUN - HELD}
    assert not held & set(kept.examples(kept.draw(99, np.random.default_rng(0))).inputs["x"][:, 0].astype(int))


def test_a_store_full_of_one_class_makes_room_for_another() -> None:
    kept = store()
    feed(kept, [(0, "")] * 100)
    feed(kept, [(1, "")] * 100)
    assert kept.counts == {(0, ""): 10, (1, ""): 10}


def test_floats_are_stored_in_half_the_bytes_where_asked() -> None:
    assert store(half=True).spec.bytes < SPEC.bytes
    kept = store(half=True)
    kept.add({"x": np.array([[1.0, 0.1, -2.5]], np.float32)}, np.array([0]))
    found = kept.examples(kept.draw(9, np.random.default_rng(0))).inputs["x"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [[1, 0.1, -2.5]], rtol=1e-3)


def test_logits_travel_with_their_samples() -> None:
    kept = store(logits=4)
    kept.add({"x": np.zeros((2, 3), np.float32)}, np.array([1, 2]), logits=np.eye(4, dtype=np.float32)[:2])
    kept.add({"x": np.zeros((1, 3), np.float32)}, np.array([3]))
    found = kept.logits(kept.draw(9, np.random.default_rng(0)))
    np.testing.assert_array_equal(found[:2], np.eye(4)[:2])
    assert np.isnan(found[2]).all()


X, LABEL = np.zeros((2, 3), np.float32), np.array([0, 1])
BAD: dict[str, tuple[dict[str, np.ndarray], np.ndarray, str]] = {
    "input missing": ({}, LABEL, "has inputs x"),
    "shape": ({"x": np.zeros((2, 4), np.float32)}, LABEL, r"shape \(2, 4\)"),
    "not finite": ({"x": np.full((2, 3), np.nan, np.float32)}, LABEL, "not finite"),
    "class unknown": ({"x": X}, np.array([0, 4]), r"classes 0 to 3; there are \[0, 4\]"),
    "class below 0": ({"x": X}, np.array([-1, 0]), "classes 0 to 3"),
    "fraction": ({"x": X}, np.array([0.5, 1]), "classes 0 to 3"),
    "label shape": ({"x": X}, np.zeros((2, 1), np.int64), "labels have shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_refused_whole(case: str) -> None:
    inputs, label, words = BAD[case]
    kept = store()
    with pytest.raises(UserError, match=words):
        kept.add(inputs, label)
    assert len(kept) == 0


def test_a_store_of_other_samples_is_refused() -> None:
    with pytest.raises(UserError, match="other samples or another budget"):
        store(20).restore(store(30).tensors())
    with pytest.raises(UserError, match="holds 3 samples"):
        store(3)
