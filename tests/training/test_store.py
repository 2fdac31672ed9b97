"""Versions survive whatever interrupts their writing: the present one is whole, or the one before is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.training import store
from edgeengine.training.store import MANIFEST, VersionStore


class Named(NamedTuple):
    hash: str


BUNDLE = Named("b" * 64)


def opened(folder: Path) -> VersionStore:
    return VersionStore(folder, BUNDLE)  # type: ignore[arg-type]


def version(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full((2, 3), value, np.float32), "b": np.full(2, value, np.float32)}


def committed(folder: Path) -> tuple[str, str]:
    versions = opened(folder)
    return versions.commit(version(1), {"step": np.array(1)}), versions.commit(version(2), {"step": np.array(2)})


def test_what_is_committed_is_read_back(tmp_path: Path) -> None:
    assert opened(tmp_path).present() is None
    _, second = committed(tmp_path)
    found = opened(tmp_path).present()
    assert found is not None
    name, tensors, state = found
    assert name == second and state["step"] == 2
    for key, array in version(2).items():
        np.testing.assert_array_equal(tensors[key], array)


def test_same_weights_have_the_same_name(tmp_path: Path) -> None:
    first, second = committed(tmp_path)
    assert first != second
    assert opened(tmp_path).commit(version(1), {"step": np.array(3)}) == first


@pytest.mark.parametrize("what", [MANIFEST, "version", "state"])
def test_truncated_anywhere_the_version_before_is_read(tmp_path: Path, what: str) -> None:
    first, second = committed(tmp_path / "whole")
    folder = tmp_path / "whole" / BUNDLE.hash
    states = sorted(folder.glob("state-*"), key=lambda f: f.stat().st_mtime_ns)
    file = {MANIFEST: folder / MANIFEST, "version": folder / f"{second}.safetensors", "state": states[-1]}[what]
    raw = file.read_bytes()
    for length in range(0, len(raw), 7):
        file.write_bytes(raw[:length])
        found = opened(tmp_path / "whole").present()
        assert found is not None and found[0] == first and found[2]["step"] == 1, length
    file.write_bytes(raw)
    found = opened(tmp_path / "whole").present()
    assert found is not None and found[0] == second


def test_both_damaged_is_an_error_that_says_so(tmp_path: Path) -> None:
    committed(tmp_path)
    for file in (tmp_path / BUNDLE.hash).glob("*.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(UserError, match="no readable version"):
        opened(tmp_path).present()


def test_commit_that_fails_at_any_write_leaves_the_present_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store._write
    for failing in range(4):
        folder = tmp_path / str(failing)
        versions = opened(folder)
        name = versions.commit(version(1), {"step": np.array(1)})
        calls = iter(range(10))

        def write(file: Path, raw: bytes, failing: int = failing, calls: object = calls) -> None:
            if next(calls) == failing:  # type: ignore[call-overload]
                raise OSError("no space left on device")
            real(file, raw)

        monkeypatch.setattr(store, "_write", write)
        with pytest.raises(UserError, match="no space left"):
            versions.commit(version(2), {"step": np.array(2)})
        monkeypatch.setattr(store, "_write", real)
        found = opened(folder).present()
        assert found is not None and found[0] == name
        shutil.rmtree(folder)
