"""The watch data: the pickle is opened for the known digest only, and once."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from coach import packages
from coach.recordings import SHA256, Recording, load_recordings
from edgeengine.errors import UserError


def test_fourteen_recordings_each(recordings: list[Recording]) -> None:
    assert len({(r.label, r.side) for r in recordings}) == len(recordings) == 14
    assert all(r.samples.dtype == np.float32 and r.samples.ndim == 2 and r.samples.shape[1] == 6 for r in recordings)
    assert all(np.isfinite(r.samples).all() for r in recordings)


def test_second_time_reads_the_cache(recordings: list[Recording], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Path:
        raise AssertionError("opened the pickle again")

    monkeypatch.setattr(packages, "locate", refuse)
    for again, first in zip(load_recordings(4, cache), recordings, strict=True):
        assert (again.label, again.side) == (first.label, first.side)
        np.testing.assert_array_equal(again.samples, first.samples)
    assert [f.suffix for f in cache.iterdir()] == [".npz"]


def test_unknown_subject(recordings: list[Recording], cache: Path) -> None:
    with pytest.raises(UserError, match="no recordings of subject 11"):
        load_recordings(11, cache)


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("unpickled a file of unknown digest",)


def test_other_file_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "watch_dataset.npy"
    other.write_bytes(pickle.dumps(_Bomb()))
    monkeypatch.setattr(packages, "locate", lambda _: other)
    with pytest.raises(UserError, match=r"pip install --no-deps seglearn==1\.2\.5"):
        load_recordings(1, tmp_path)


def test_damaged_cache_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / f"watch-{SHA256[:8]}-subject-1.npz"
    file.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(UserError, match="delete the file"):
        load_recordings(1, tmp_path)
