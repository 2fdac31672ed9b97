"""The measurement store."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path

import msgspec
import pytest

from edgeengine.errors import InternalError, UserError
from edgeengine.profiling import PREDICTED, ProfileStore, export_json, read_profile
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


# ---- between machines, between versions ----


def test_rows_of_another_machine_are_merged_and_the_later_one_stays(file: Path, tmp_path: Path) -> None:
    here, there = ProfileStore(file), ProfileStore(tmp_path / "there.sqlite")
    here.put([row(), row(subgraph="old", measured_at="2024-01-01"), row(subgraph="new", measured_at="2024-03-01"), MACHINE])
    there.put([row(device="d2"), row(subgraph="old", measured_at="2024-02-01"), row(subgraph="new", measured_at="2024-02-01")])
    assert here.merge(*read_profile(tmp_path / "there.sqlite")) == 2
    assert {(r.device, r.subgraph, r.measured_at) for r in here.rows()} == {
        ("d1", "s0_1", "2024-01-01"), ("d2", "s0_1", "2024-01-01"), ("d1", "old", "2024-02-01"), ("d1", "new", "2024-03-01"),
    }  # fmt: skip
    assert here.machine_rows() == [MACHINE]
    assert here.merge(*read_profile(tmp_path / "there.sqlite")) == 0


def test_exported_document_is_read_back(file: Path, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(export_json([row(), row(verdict="wrong", reason="y")], [MACHINE])[0])
    assert read_profile(tmp_path / "p.json") == ([row(), row(verdict="wrong", reason="y")], [MACHINE])


def test_rows_of_older_and_newer_versions_still_load(file: Path) -> None:
    """As the first version wrote them, and with a field that is yet to come."""
    store = ProfileStore(file)
    fields = {
        "bundle": "b1", "device": "d1", "processor": "cpu0", "subgraph": "s0_1", "shapes": "x=1x3", "condition": "back_to_back",
        "latency": {"n": 3, "quantiles_ns": list(ROW.latency.quantiles_ns)}, "first_run_ns": 9, "create_ns": 8,
        "resident_bytes": None, "measured_at": "2024-01-01", "versions": {"numpy": "2"}, "yet_to_come": [1],
    }  # fmt: skip
    machine = {"device": "d1", "name": "timer", "latency": msgspec.to_builtins(MACHINE.latency), "measured_at": "2024-01-01"}
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO profile VALUES (?,?,?,?,?,?,?)", (*ROW.key, json.dumps(fields).encode()))
        db.execute("INSERT INTO machine VALUES (?,?,?)", ("d1", "timer", json.dumps(machine).encode()))
    db.close()
    assert (store.rows(), store.machine_rows()) == ([ROW], [MACHINE])
    assert ROW.verdict == "unchecked" and ROW.usable


def test_predicted_rows_never_get_into_a_store(file: Path, tmp_path: Path) -> None:
    """Not by merging an export that holds them, not in place of what was measured; and none is left behind by a refused put."""
    predicted = row(ended=PREDICTED, latency=Latency(0, ROW.latency.quantiles_ns), measured_at="2030-01-01")
    store = ProfileStore(file)
    store.put([row()])
    (tmp_path / "p.json").write_bytes(export_json([predicted, row(subgraph="new")], [])[0])
    assert store.merge(*read_profile(tmp_path / "p.json")) == 1
    assert store.rows() == [row(subgraph="new"), row()]
    with pytest.raises(InternalError, match="s0_1 on cpu0 is predicted"):
        store.put([row(subgraph="third"), predicted])
    assert len(store.rows()) == 2


@pytest.mark.parametrize("quantiles", [[1, 2], [], [*range(13), 5], [None] * 14])
def test_row_whose_latency_is_no_distribution_is_refused(tmp_path: Path, quantiles: list[int]) -> None:
    document = json.loads(export_json([row()], [])[0])
    document["rows"][0]["latency"] = {"n": 3, "quantiles_ns": quantiles}
    (tmp_path / "p.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"p.json: neither a profile store nor"):
        read_profile(tmp_path / "p.json")


def test_store_of_another_machine_is_only_read(file: Path, tmp_path: Path) -> None:
    """As is any other database that is given by mistake: it stays as it was, byte for byte."""
    ProfileStore(file).put([row(), MACHINE])
    stranger = tmp_path / "other.sqlite"
    with sqlite3.connect(stranger) as db:
        db.execute("CREATE TABLE bookmarks (url)")
    db.close()
    before = {f: f.read_bytes() for f in (file, stranger)}
    assert read_profile(file) == ([row()], [MACHINE])
    with pytest.raises(UserError, match=r"other.sqlite: not a usable profile store"):
        read_profile(stranger)
    assert {f: f.read_bytes() for f in (file, stranger)} == before


def test_store_that_cannot_be_used_now_is_not_to_be_moved_away(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeengine.profiling.store.BUSY_S", 0.01)
    store = ProfileStore(file)
    with sqlite3.connect(file) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError, match=r"cannot be used now.*another program holds it") as e:
            store.put([row()])
    other.close()
    assert "move it away" not in str(e.value)
    with sqlite3.connect(file) as small:
        pages = small.execute("PRAGMA page_count").fetchone()[0]
    small.close()
    connect = sqlite3.connect

    def full(*args: object, **kwargs: object) -> sqlite3.Connection:
        db = connect(*args, **kwargs)  # type: ignore[call-overload]
        db.execute(f"PRAGMA max_page_count = {pages}")
        return db

    monkeypatch.setattr("edgeengine.profiling.store.sqlite3.connect", full)
    with pytest.raises(UserError, match="free space on its disk"):
        store.put([row(subgraph=f"s{i}", reason="x" * 4000) for i in range(20)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "neither a profile store nor an exported profile"),
        (b"{}", "neither a profile store nor an exported profile"),
        (b'{"schema": 99, "rows": [], "machine": []}', "profile schema 99"),
        (b"SQLite format 3\x00" + b"garbage" * 99, "not a usable profile store"),
    ],
)
def test_file_that_is_no_profile_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(UserError, match=f"p: {said}"):
        read_profile(tmp_path / "p")
    with pytest.raises(UserError, match="absent: neither"):
        read_profile(tmp_path / "absent")


def test_row_that_cannot_be_read_is_named(file: Path) -> None:
    store = ProfileStore(file)
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO profile VALUES (?,?,?,?,?,?,?)", (*ROW.key, b"{}"))
    db.close()
    with pytest.raises(UserError, match="holds a row that cannot be read"):
        store.rows()


def test_predicted_and_estimated_rows_of_described_devices_are_not_kept(tmp_path: Path) -> None:
    store = ProfileStore(tmp_path / "profile.sqlite")
    for ended in ("predicted", "estimated"):
        row = msgspec.structs.replace(ROW, ended=ended, measured_at="9999")
        assert store.merge([row], []) == 0 and not row.measured
        with pytest.raises(InternalError):
            store.put([row])
