"""A pool of heads: everybody's own while there is room, two distilled into one after that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training import inference_session
from edgeengine.training.adapters import FILE, AdapterPool, leep
from edgeengine.training.ridge import RidgeHead, predictions
from edgeengine.training.state import Arrays
from tests.gradients.nets import two_moons
from tests.training.moons import moons_bundle

Data = tuple[dict[str, np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return moons_bundle(tmp_path_factory.mktemp("moons"))


def person(turn: float, count: int = 200, seed: int = 0) -> Data:
    """The moons of somebody: turned by so many degrees."""
    x, label = two_moons(count, seed)
    a = np.deg2rad(turn)
    return {"x": (x @ np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])).astype(np.float32)}, label


def head_for(bundle: Bundle, data: Data) -> Arrays:
    head = RidgeHead(bundle)
    head.observe(*data)
    return head.version()


def right(bundle: Bundle, version: Arrays, turn: float) -> float:
    inputs, label = person(turn, seed=9)
    return float(np.mean(predictions(inference_session(bundle, version), bundle.manifest.outputs[0].name, inputs) == label))


def test_everybody_has_a_head_of_their_own_while_there_is_room(bundle: Bundle, tmp_path: Path) -> None:
    pool = AdapterPool(bundle, tmp_path, most=3)
    assert pool.version("anna") == {} and pool.users == {}
    made = {}
    for user, turn in (("anna", 0.0), ("ben", 120.0), ("cleo", 240.0)):
        made[user] = head_for(bundle, person(turn))
        assert pool.keep(user, made[user], *person(turn)) == (user,)
    again = AdapterPool(bundle, tmp_path, most=3)
    for user, version in made.items():
        for name, array in again.version(user).items():
            np.testing.assert_array_equal(array, version[name])


def test_when_it_is_full_the_most_transferable_takes_the_new_one_in(bundle: Bundle, tmp_path: Path) -> None:
    pool = AdapterPool(bundle, tmp_path, most=2)
    for user, turn in (("anna", 0.0), ("ben", 180.0)):
        pool.keep(user, head_for(bundle, person(turn)), *person(turn))
    own = head_for(bundle, person(15.0))
    assert pool.keep("cleo", own, *person(15.0)) == ("anna", "cleo")
    assert pool.users == {"anna": 0, "cleo": 0, "ben": 1} and len(pool.adapters) == 2
    for user, turn in (("anna", 0.0), ("cleo", 15.0)):
        assert right(bundle, pool.version(user), turn) >= right(bundle, head_for(bundle, person(turn)), turn) - 0.05
    # Replacing her head, Anna leaves the shared one to the other: the pool is full, she is taken in again.
    assert pool.keep("anna", head_for(bundle, person(0.0)), *person(0.0)) == ("cleo", "anna")


def test_distilling_two_equal_heads_gives_that_head(bundle: Bundle, tmp_path: Path) -> None:
    pool, version = AdapterPool(bundle, tmp_path, most=1), head_for(bundle, person(0.0))
    pool.keep("anna", version, *person(0.0))
    pool.keep("ben", version, *person(0.0, seed=4))
    inputs, _ = person(0.0, seed=9)
    y = bundle.manifest.outputs[0].name
    one, other = (inference_session(bundle, v).run([y], inputs)[0] for v in (version, pool.version("ben")))
    assert np.abs(one - other).max() < 0.05 * np.abs(one).max()


def test_who_is_forgotten_leaves_no_sample(bundle: Bundle, tmp_path: Path) -> None:
    pool = AdapterPool(bundle, tmp_path, most=1)
    for user, turn in (("anna", 0.0), ("ben", 30.0)):
        pool.keep(user, head_for(bundle, person(turn)), *person(turn))
    size = (tmp_path / FILE).stat().st_size
    pool.forget("anna")
    assert pool.users == {"ben": 0} and (tmp_path / FILE).stat().st_size < size
    pool.forget("ben")
    assert pool.users == {} and b"ben" not in (tmp_path / FILE).read_bytes()
    assert AdapterPool(bundle, tmp_path).version("ben") == {}


def test_leep_is_highest_for_the_head_that_tells_the_labels_best() -> None:
    label = np.array([0, 1, 0, 1, 1, 0])
    sure = np.where(np.arange(2) == label[:, None], 5.0, -5.0)
    assert leep(sure, label) > -0.01
    assert leep(-sure, label) == pytest.approx(leep(sure, label))  # classes may have other names
    assert leep(np.zeros((6, 2)), label) == pytest.approx(np.log(0.5), abs=1e-6)


def test_what_cannot_be_kept(bundle: Bundle, tmp_path: Path) -> None:
    pool, version = AdapterPool(bundle, tmp_path), head_for(bundle, person(0.0))
    inputs, label = person(0.0)
    for user, head, x, y in (
        ("", version, inputs, label),
        ("anna", {**version, "more": np.zeros(1)}, inputs, label),
        ("anna", version, {"x": inputs["x"][:0]}, label[:0]),
    ):
        with pytest.raises(UserError, match="head"):
            pool.keep(user, head, x, y)
    assert pool.users == {} and not (tmp_path / FILE).exists()
    with pytest.raises(UserError, match="give 1 or more"):
        AdapterPool(bundle, tmp_path, most=0)
    (tmp_path / FILE).write_bytes(b"no such file")
    with pytest.raises(UserError, match="cannot be read"):
        AdapterPool(bundle, tmp_path)
