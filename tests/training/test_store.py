"""What was learned survives whatever interrupts its writing: the present manifest is whole, or the one before is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.training import store
from edgeengine.training.store import MANIFEST, PREVIOUS, VersionStore


class Named(NamedTuple):
    hash: str


BUNDLE = Named("b" * 64)
replace = msgspec.structs.replace


def opened(folder: Path, bundle: Named = BUNDLE) -> VersionStore:
    return VersionStore(folder, bundle)  # type: ignore[arg-type]


def version(value: float) -> dict[str, np.ndarray]:
    return {"w": np.full((2, 3), value, np.float32), "b": np.full(2, value, np.float32)}


def commit(folder: Path, value: float) -> str:
    kept = opened(folder)
    name, state = kept.put(version(value)), kept.put({"step": np.array(int(value))}, "state")
    kept.commit(replace(kept.manifest, serving=name, fallback=kept.manifest.serving, state=state))
    return name


def present(folder: Path) -> tuple[str, int]:
    kept = opened(folder)
    return kept.manifest.serving, int(kept.read(kept.manifest.state)["step"])


def test_what_is_committed_is_read_back(tmp_path: Path) -> None:
    assert opened(tmp_path).manifest.serving == ""
    commit(tmp_path, 1)
    second = commit(tmp_path, 2)
    assert present(tmp_path) == (second, 2)
    for key, array in version(2).items():
        np.testing.assert_array_equal(opened(tmp_path).version(second)[key], array)
    assert opened(tmp_path).version("") == {}


def test_same_weights_have_the_same_name(tmp_path: Path) -> None:
    assert commit(tmp_path, 1) != commit(tmp_path, 2)
    assert opened(tmp_path).put(version(1)) == commit(tmp_path, 1)


def test_files_that_no_manifest_names_are_removed(tmp_path: Path) -> None:
    for value in range(6):
        commit(tmp_path, value)
    names = {f.name for f in (tmp_path / BUNDLE.hash).iterdir()}
    assert {MANIFEST, PREVIOUS} < names and len(names) == 2 + 2 + 3  # states of two manifests, versions 3, 4 and 5


@pytest.mark.parametrize("what", [MANIFEST, "version", "state"])
def test_truncated_anywhere_the_one_before_is_read(tmp_path: Path, what: str) -> None:
    first = commit(tmp_path, 1)
    second = commit(tmp_path, 2)
    folder = tmp_path / BUNDLE.hash
    manifest = opened(tmp_path).manifest
    file = {
        MANIFEST: folder / MANIFEST,
        "version": folder / f"{second}.safetensors",
        "state": folder / f"{manifest.state}.safetensors",
    }[what]
    raw = file.read_bytes()
    for length in range(0, len(raw), 7):
        file.write_bytes(raw[:length])
        assert present(tmp_path) == (first, 1), length
    file.write_bytes(raw)
    assert present(tmp_path) == (second, 2)


def test_after_damage_it_goes_on_from_the_one_before(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    (tmp_path / BUNDLE.hash / MANIFEST).write_bytes(b"{")
    third = commit(tmp_path, 3)
    (tmp_path / BUNDLE.hash / MANIFEST).write_bytes(b"")
    assert present(tmp_path)[1] == 1
    assert third != ""


def test_both_damaged_is_an_error_that_says_so(tmp_path: Path) -> None:
    commit(tmp_path, 1)
    commit(tmp_path, 2)
    for file in (tmp_path / BUNDLE.hash).glob("*.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(UserError, match="no readable version"):
        opened(tmp_path)


@pytest.mark.parametrize("change", [{"schema": 99}, {"bundle": "c" * 64}])
def test_state_of_another_bundle_or_schema_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    commit(tmp_path, 1)
    file = tmp_path / BUNDLE.hash / MANIFEST
    file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes()) | change))
    with pytest.raises(UserError, match=r"schema 99|another bundle"):
        opened(tmp_path)


def test_forgetting_leaves_nothing_of_what_was_before(tmp_path: Path) -> None:
    kept = opened(tmp_path)
    secret = kept.put({"x": np.full(9, 7.25)}, "samples")
    kept.commit(replace(kept.manifest, samples=secret))
    kept.commit(replace(kept.manifest, samples=kept.put({"x": np.zeros(9)}, "samples")), forget=True)
    for file in (tmp_path / BUNDLE.hash).iterdir():
        assert np.float64(7.25).tobytes() not in file.read_bytes() and secret not in file.read_text(errors="replace")
    (tmp_path / BUNDLE.hash / MANIFEST).write_bytes(b"")
    assert not opened(tmp_path).read(opened(tmp_path).manifest.samples)["x"].any()


def test_commit_that_fails_at_any_write_leaves_the_present_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = store.write_file
    for failing in range(4):
        folder = tmp_path / str(failing)
        name = commit(folder, 1)
        calls = iter(range(10))

        def write(file: Path, raw: bytes, failing: int = failing, calls: object = calls) -> None:
            if next(calls) == failing:  # type: ignore[call-overload]
                raise OSError("no space left on device")
            real(file, raw)

        monkeypatch.setattr(store, "write_file", write)
        with pytest.raises(UserError, match="no space left"):
            commit(folder, 2)
        monkeypatch.setattr(store, "write_file", real)
        assert present(folder) == (name, 1)
