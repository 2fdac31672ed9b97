"""Sources by description."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.io import make_source
from edgeengine.spec import TensorSpec

X = TensorSpec("x", "float32", (2, 3))
ALL = [X, TensorSpec("i", "int64", (50,)), TensorSpec("b", "bool", (50,)), TensorSpec("h", "float16", (2,))]


def test_zeros_have_shape_and_type() -> None:
    read = make_source("zeros", [*ALL, TensorSpec("s", "str", (1,))]).read(0, 0)
    assert {n: (a.shape, str(a.dtype)) for n, a in read.items()} == {
        "x": ((2, 3), "float32"), "i": ((50,), "int64"), "b": ((50,), "bool"), "h": ((2,), "float16"), "s": ((1,), "object"),
    }  # fmt: skip
    assert not any(a.any() for a in read.values())


def test_random_is_seeded_differs_by_job_and_fits() -> None:
    one, same, other = (make_source(f"random:{seed}", ALL) for seed in (1, 1, 2))
    for index in (-3, 0, 1, 100):
        a, b = one.read(index, 0), same.read(index, 0)
        assert all(np.array_equal(a[n], b[n]) for n in a)
        assert {n: v.dtype for n, v in a.items()} == {s.name: np.dtype(s.dtype) for s in ALL}
        assert set(np.unique(a["i"])) == {0, 1}
    assert not np.array_equal(one.read(0, 0)["x"], one.read(1, 0)["x"])
    assert not np.array_equal(one.read(0, 0)["x"], other.read(0, 0)["x"])


def test_integers_lie_in_the_range_ends_included() -> None:
    drawn = np.concatenate([make_source("random:0", [ALL[1]], (3, 5)).read(i, 0)["i"] for i in range(8)])
    assert set(np.unique(drawn)) == {3, 4, 5}


def test_file_gives_one_value_or_a_row_per_job(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.savez(tmp_path / "f.npz", x=rows, i=np.arange(50))
    source = make_source(str(tmp_path / "f.npz"), [X, ALL[1]])
    for index in (0, 3, 4, 9):
        read = source.read(index, 0)
        np.testing.assert_array_equal(read["x"], rows[index % 4])
        np.testing.assert_array_equal(read["i"], np.arange(50))


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({"y": np.zeros((2, 3), np.float32)}, "x is not a file"),
        ({"x": np.zeros((2, 3))}, "float64"),
        ({"x": np.zeros((3, 2), np.float32)}, "shape"),
        ({"x": np.zeros((0, 2, 3), np.float32)}, "shape"),
        ({"x": np.array([None], object)}, "pickle"),
    ],
)
def test_file_that_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], what: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(UserError, match=what) as e:
        make_source(str(tmp_path / "f.npz"), [X])
    assert "f.npz" in str(e.value)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 broken", None])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "f.npz").write_bytes(data)
    with pytest.raises(UserError, match=r"f\.npz"):
        make_source(str(tmp_path / "f.npz"), [X])


def test_single_array_named_like_an_archive_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "f.npz").open("wb") as f:
        np.save(f, np.zeros((2, 3), np.float32))
    with pytest.raises(UserError, match=r"f\.npz"):
        make_source(str(tmp_path / "f.npz"), [X])


@pytest.mark.parametrize("text", ["random", "random:", "random:-1", "noise", "zeros:1", ""])
def test_unknown_description_says_what_to_write(text: str) -> None:
    with pytest.raises(UserError, match="random:SEED"):
        make_source(text, [X])


@pytest.mark.parametrize("dtype", ["str", "complex64"])
def test_type_without_random_values_is_refused(dtype: str) -> None:
    with pytest.raises(UserError, match="no random values"):
        make_source("random:0", [TensorSpec("x", dtype, (1,))])


def test_symbolic_shape_is_refused() -> None:
    with pytest.raises(UserError, match="'x' has shape"):
        make_source("zeros", [TensorSpec("x", "float32", ("batch", 3))])
