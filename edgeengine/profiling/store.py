"""The measurement store: one SQLite file for all bundles of a state folder, exportable as JSON."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec import MachineRow, ProfileRow

SCHEMA = """
CREATE TABLE IF NOT EXISTS profile (
    bundle TEXT NOT NULL, device TEXT NOT NULL, processor TEXT NOT NULL, subgraph TEXT NOT NULL, shapes TEXT NOT NULL,
    condition TEXT NOT NULL, row BLOB NOT NULL,
    PRIMARY KEY (bundle, device, processor, subgraph, shapes, condition)
) STRICT;
CREATE TABLE IF NOT EXISTS machine (
    device TEXT NOT NULL, name TEXT NOT NULL, row BLOB NOT NULL, PRIMARY KEY (device, name)
) STRICT;
"""


class ProfileStore:
    """`STATE/profile.sqlite`. A row replaces an older one of the same key. Safe for concurrent readers (WAL)."""

    def __init__(self, file: Path):
        self._file = file
        with self._connect() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(SCHEMA)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A connection that commits and closes. Raises UserError for a store that cannot be used."""
        try:
            with closing(sqlite3.connect(self._file, timeout=30)) as db, db:
                yield db
        except (sqlite3.Error, msgspec.DecodeError) as e:
            raise UserError(f"{self._file}: not a usable profile store ({e}); move it away to start a new one") from e

    def put(self, rows: Iterable[ProfileRow | MachineRow]) -> None:
        with self._connect() as db:
            for row in rows:
                blob = msgspec.json.encode(row)
                if isinstance(row, ProfileRow):
                    key = (row.bundle, row.device, row.processor, row.subgraph, row.shapes, row.condition)
                    db.execute("INSERT OR REPLACE INTO profile VALUES (?,?,?,?,?,?,?)", (*key, blob))
                else:
                    db.execute("INSERT OR REPLACE INTO machine VALUES (?,?,?)", (row.device, row.name, blob))

    def rows(self, device: str, bundle: str | None = None) -> list[ProfileRow]:
        """Rows of one device, of one bundle if given, in key order."""
        where, values = ("AND bundle = ?", [device, bundle]) if bundle is not None else ("", [device])
        query = f"SELECT row FROM profile WHERE device = ? {where} ORDER BY bundle, processor, subgraph, shapes, condition"
        with self._connect() as db:
            return [msgspec.json.decode(blob, type=ProfileRow) for (blob,) in db.execute(query, values)]

    def machine_rows(self, device: str) -> list[MachineRow]:
        with self._connect() as db:
            found = db.execute("SELECT row FROM machine WHERE device = ? ORDER BY name", [device])
            return [msgspec.json.decode(blob, type=MachineRow) for (blob,) in found]


def export_json(rows: list[ProfileRow], machine: list[MachineRow]) -> tuple[bytes, str]:
    """One JSON document of rows, and its sha256."""
    document = msgspec.json.format(msgspec.json.encode({"schema": 1, "rows": rows, "machine": machine}), indent=1)
    return document, hashlib.sha256(document).hexdigest()
