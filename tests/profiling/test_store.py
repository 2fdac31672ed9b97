"""The measurement store."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from edgeengine.errors import UserError
from edgeengine.profiling import ProfileStore, export_json
from edgeengine.spec import Latency, MachineRow, ProfileRow

ROW = ProfileRow(
    bundle="b1", device="d1", processor="cpu0", subgraph="s0_1", shapes="x=1x3", condition="back_to_back",
    latency=Latency.of([3, 1, 2]), first_run_ns=9, create_ns=8, resident_bytes=None, measured_at="2024-01-01",
    versions={"numpy": "2"},
)  # fmt: skip
MACHINE = MachineRow("d1", "timer", Latency.constant(5), "2024-01-01")


def row(**changes: object) -> ProfileRow:
    return msgspec.structs.replace(ROW, **changes)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "profile.sqlite"


def test_rows_come_back_as_they_went_in_also_to_another_reader(file: Path) -> None:
    rows = [row(), row(processor="npu", resident_bytes=7), row(condition="period:30")]
    ProfileStore(file).put([*rows, MACHINE])
    found = ProfileStore(file).rows("d1", "b1")
    assert sorted(found, key=repr) == sorted(rows, key=repr)
    assert ProfileStore(file).machine_rows("d1") == [MACHINE]


@pytest.mark.parametrize("key", ["bundle", "device", "processor", "subgraph", "shapes", "condition"])
def test_row_with_another_key_is_another_row(file: Path, key: str) -> None:
    store = ProfileStore(file)
    store.put([row(), row(**{key: "other"})])
    assert len(store.rows("d1") + store.rows("other")) == 2


def test_row_of_the_same_key_replaces_the_old_one(file: Path) -> None:
    store = ProfileStore(file)
    store.put([row(), MACHINE])
    newer, machine = row(latency=Latency.constant(1)), msgspec.structs.replace(MACHINE, latency=Latency.constant(6))
    store.put([newer, machine])
    assert (store.rows("d1"), store.machine_rows("d1")) == ([newer], [machine])


def test_rows_are_of_the_device_and_bundle_asked_for_in_order_of_their_keys(file: Path) -> None:
    store = ProfileStore(file)
    store.put([row(subgraph="s1_2"), row(bundle="b2"), row(), row(device="d2")])
    assert [(r.bundle, r.subgraph) for r in store.rows("d1")] == [("b1", "s0_1"), ("b1", "s1_2"), ("b2", "s0_1")]
    assert [r.bundle for r in store.rows("d1", "b2")] == ["b2"]
    assert store.rows("d9") == store.machine_rows("d9") == []


def test_failed_put_leaves_nothing_behind(file: Path) -> None:
    store = ProfileStore(file)
    with pytest.raises(AttributeError):
        store.put([row(), None])  # type: ignore[list-item]
    assert store.rows("d1") == []


def test_file_that_is_no_store_is_named(file: Path) -> None:
    file.write_bytes(b"this is no database, and long enough to be sure of it" * 20)
    with pytest.raises(UserError, match=r"profile.sqlite: not a usable profile store.*move it away"):
        ProfileStore(file)


def test_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        ProfileStore(tmp_path / "nowhere/profile.sqlite")


def test_export_is_one_document_with_its_digest() -> None:
    document, digest = export_json([row()], [MACHINE])
    read = json.loads(document)
    assert msgspec.convert(read["rows"], list[ProfileRow]) == [ROW]
    assert msgspec.convert(read["machine"], list[MachineRow]) == [MACHINE]
    assert digest == hashlib.sha256(document).hexdigest()
    assert export_json([row()], [MACHINE]) == (document, digest)
