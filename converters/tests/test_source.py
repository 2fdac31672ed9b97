"""Reading the data file: the real one when it is installed, and damaged ones."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeengine_converters import ConversionError
from edgeengine_converters.watch import source


def table(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "X": [rng.normal(size=(300, 6)) for _ in range(3)],
        "y": np.array([0, 1, 1]),
        "subject": np.array([1, 2, 3]),
        "side": np.array([0.0, 1.0, 1.0]),
        "X_labels": list(source.CHANNELS),
        "y_labels": ["PEN", "ABD"],
        **changes,
    }


def saved(folder: Path, content: Any) -> Path:
    path = folder / "watch.npy"
    np.save(path, np.array(content, dtype=object), allow_pickle=True)
    return path


def test_reads_a_file(tmp_path: Path) -> None:
    recordings = source.read(saved(tmp_path, table()))
    assert recordings.subjects == (1, 2, 3) and recordings.labels == ("PEN", "ABD")
    first = recordings.items[0]
    assert first.samples.dtype == np.float32 and first.samples.shape == (300, 6)
    assert (first.label, first.subject, first.side) == (0, 1, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"X_labels": ["a", "b", "c", "d", "e", "f"]}, "columns"),
        ({"y": np.array([0, 1])}, "unexpected content"),
        ({"y": np.array([0, 1, 2])}, "label 2"),
        ({"X": [np.zeros((300, 5))] * 3}, "shape"),
        ({"X": [np.full((300, 6), np.nan)] * 3}, "not finite"),
        ({"X": None}, "unexpected content"),
    ],
)
def test_refuses_other_content(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConversionError, match=said) as caught:
        source.read(saved(tmp_path, table(**change)))
    assert "\n" not in str(caught.value) and "watch.npy" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"not an array at all"])
def test_refuses_a_damaged_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "watch.npy"
    path.write_bytes(content)
    with pytest.raises(ConversionError, match="cannot be read"):
        source.read(path)


def test_refuses_a_cut_file(tmp_path: Path) -> None:
    path = saved(tmp_path, table())
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ConversionError, match="cannot be read"):
        source.read(path)


def test_refuses_something_else(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="expected a dictionary"):
        source.read(saved(tmp_path, 3))


class _Runs:
    """Unpickles by calling a function: what a hostile file would do."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pickle.loads, (b"",))


def test_runs_no_code_from_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="is not allowed in this file"):
        source.read(saved(tmp_path, {"X": _Runs()}))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="no such file"):
        source.read(tmp_path / "absent.npy")


def test_installed_data_set() -> None:
    try:
        recordings = source.read()
    except ConversionError as error:
        pytest.skip(f"the recordings are not installed: {error}")
    assert recordings.sha256 == source.DATA_SHA256
    assert len(recordings.items) == 140 and recordings.subjects == tuple(range(1, 11))
    assert recordings.labels == ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
    # One of each exercise, by each subject, on each wrist.
    assert len({(item.subject, item.side, item.label) for item in recordings.items}) == 140
