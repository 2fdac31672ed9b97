"""The state after a step outlives a kill at any byte of writing the next one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgeengine.training.slots import NAMES, Slots
from tests.training.test_store import BUNDLE, opened


def state(value: int, size: int = 9) -> dict[str, np.ndarray]:
    return {"w": np.full(size, value, np.float32), "step": np.array(value)}


def written(folder: Path, count: int) -> Slots:
    slots = Slots(folder)
    for value in range(1, count + 1):
        slots.write(state(value), learned=10 * value)
    return slots


def test_the_newest_is_read_back_by_whoever_opens_the_folder(tmp_path: Path) -> None:
    assert Slots(tmp_path).newest() is None
    written(tmp_path, 5)
    again = Slots(tmp_path)
    kept = again.newest()
    assert kept is not None and (kept.number, kept.learned, int(kept.tensors["step"])) == (5, 50, 5)
    assert again.number == 5 and again.newest(after=5) is None
    again.write(state(6, size=3), learned=60)  # shorter than what was there
    kept = Slots(tmp_path).newest()
    assert kept is not None and kept.tensors["w"].tolist() == [6.0] * 3


@pytest.mark.parametrize("count", [4, 5])
def test_cut_short_at_any_byte_the_one_before_is_there(count: int, tmp_path: Path) -> None:
    first = written(tmp_path, count - 1)
    file = tmp_path / NAMES[count % 2]
    before = file.read_bytes()
    first.write(state(count), 0)
    after = file.read_bytes()
    for cut in range(0, len(after), 3):
        file.write_bytes(after[:cut] + before[cut:])
        slots = Slots(tmp_path)
        kept = slots.newest()
        assert kept is not None and (kept.number == count - 1 or file.read_bytes() == after)
    file.write_bytes(after[:-1])
    Slots(tmp_path).write(state(count), 0)  # over the torn one
    kept = Slots(tmp_path).newest()
    assert kept is not None and kept.number == count


def test_a_manifest_takes_up_what_was_kept_and_what_comes_later_is_newer(tmp_path: Path) -> None:
    disk = opened(tmp_path)
    assert disk.state() is None
    disk.keep(state(1), 11)
    disk.keep(state(2), 22)
    disk.commit(msgspec.structs.replace(disk.manifest, **disk.put_state(state(7), 77)))
    for one in (disk, opened(tmp_path)):
        found = one.state()
        assert found is not None and (int(found[0]["step"]), found[1]) == (7, 77)
    disk.keep(state(8), 88)
    found = opened(tmp_path).state()
    assert found is not None and (int(found[0]["step"]), found[1]) == (8, 88)
    assert {f.name for f in (tmp_path / BUNDLE.hash).iterdir()} >= set(NAMES)


def test_forgetting_removes_what_was_kept(tmp_path: Path) -> None:
    disk = opened(tmp_path)
    disk.keep(state(1), 0)
    disk.commit(msgspec.structs.replace(disk.manifest, **disk.put_state(state(2), 0)), forget=True)
    assert not any((tmp_path / BUNDLE.hash / name).exists() for name in NAMES)
    disk.keep(state(3), 0)
    found = opened(tmp_path).state()
    assert found is not None and int(found[0]["step"]) == 3


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeengine.errors import UserError

    def full(*_: object) -> int:
        raise OSError("no space left on device")

    disk = opened(tmp_path)
    disk.keep(state(1), 0)
    monkeypatch.setattr("edgeengine.training.slots.os.pwrite", full)
    with pytest.raises(UserError, match="no space left"):
        disk.keep(state(2), 0)
    found = opened(tmp_path).state()
    assert found is not None and int(found[0]["step"]) == 1
