"""The measurement store: one SQLite file for all bundles of a state folder, exportable as JSON, mergeable."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from edgeengine.errors import InternalError, UserError
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

SCHEMA_VERSION = 1  # of exported documents
SQLITE = b"SQLite format 3\x00"  # how such files begin (https://www.sqlite.org/fileformat.html)

BUSY_S = 30  # waits so long for another process that writes
# What mends a store that is whole but cannot be used now, by SQLite's result codes (https://www.sqlite.org/rescode.html).
REMEDIES = {
    "SQLITE_BUSY": "another program holds it: try again when that has ended",
    "SQLITE_FULL": "free space on its disk",
    "SQLITE_IOERR": "free space on its disk, and see whether that is sound",
    "SQLITE_READONLY": "make it and its folder writable, or give another with --state",
    "SQLITE_CANTOPEN": "make its folder readable and writable, or give another with --state",
}

_Row = TypeVar("_Row", ProfileRow, MachineRow)


class ProfileStore:
    """`STATE/profile.sqlite`. A row replaces an older one of the same key. Safe for concurrent readers (WAL).

    `foreign`: another machine's, which is only read: nothing is made or changed in its file. Raises UserError for a file that
    is no such store.
    """

    def __init__(self, file: Path, foreign: bool = False):
        self._file, self._foreign = file, foreign
        if not foreign:
            with self._connect() as db:
                db.execute("PRAGMA journal_mode=WAL")
                db.executescript(SCHEMA)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A connection that commits and closes. Raises UserError for a store that cannot be used."""
        where = f"{self._file.absolute().as_uri()}?mode={'ro' if self._foreign else 'rwc'}"
        try:
            with closing(sqlite3.connect(where, timeout=BUSY_S, uri=True)) as db, db:
                yield db
        except sqlite3.Error as e:
            name = getattr(e, "sqlite_errorname", "")
            remedy = next((r for code, r in REMEDIES.items() if name.startswith(code)), None)
            if remedy is not None:
                raise UserError(f"{self._file}: the profile store cannot be used now ({e}); {remedy}") from e
            what = "give an exported profile or a store" if self._foreign else "move it away to start a new one"
            raise UserError(f"{self._file}: not a usable profile store ({e}); {what}") from e

    def put(self, rows: Iterable[ProfileRow | MachineRow]) -> None:
        """All of `rows` or none. Raises InternalError for a predicted row: what is kept counts as measured."""
        with self._connect() as db:
            for row in rows:
                blob = msgspec.json.encode(row)
                if isinstance(row, ProfileRow):
                    if not row.measured:
                        raise InternalError(f"{row.subgraph} on {row.processor} is predicted: a store holds what was measured")
                    db.execute("INSERT OR REPLACE INTO profile VALUES (?,?,?,?,?,?,?)", (*row.key, blob))
                else:
                    db.execute("INSERT OR REPLACE INTO machine VALUES (?,?,?)", (row.device, row.name, blob))

    def merge(self, rows: Iterable[ProfileRow], machine: Iterable[MachineRow]) -> int:
        """Take in rows measured elsewhere, and say how many; of two with the same key the one measured later stays.

        Predicted rows are left out.
        """
        own = {r.key: r.measured_at for r in self.rows()}
        own_machine = {(r.device, r.name): r.measured_at for r in self.machine_rows()}
        newer = [r for r in rows if r.measured and r.measured_at > own.get(r.key, "")]
        newer_machine = [r for r in machine if r.measured_at > own_machine.get((r.device, r.name), "")]
        self.put([*newer, *newer_machine])
        return len(newer) + len(newer_machine)

    def rows(self, device: str | None = None, bundle: str | None = None) -> list[ProfileRow]:
        """Rows of one device and one bundle where these are given, in key order."""
        query = (
            "SELECT row FROM profile WHERE device = ifnull(?, device) AND bundle = ifnull(?, bundle)"
            " ORDER BY device, bundle, processor, subgraph, shapes, condition"
        )
        return self._decoded(query, (device, bundle), ProfileRow)

    def machine_rows(self, device: str | None = None) -> list[MachineRow]:
        return self._decoded(
            "SELECT row FROM machine WHERE device = ifnull(?, device) ORDER BY device, name", (device,), MachineRow
        )

    def _decoded(self, query: str, values: tuple[str | None, ...], kind: type[_Row]) -> list[_Row]:
        """Rows written by an older version lack fields: these take their defaults. Unknown fields are left out."""
        with self._connect() as db:
            found = db.execute(query, values).fetchall()
        try:
            return [msgspec.json.decode(blob, type=kind) for (blob,) in found]
        except msgspec.DecodeError as e:
            raise UserError(f"{self._file}: holds a row that cannot be read ({e}); move it away to start a new one") from e


class _Export(msgspec.Struct, frozen=True):
    schema: int
    rows: list[ProfileRow]
    machine: list[MachineRow]


def export_json(rows: list[ProfileRow], machine: list[MachineRow]) -> tuple[bytes, str]:
    """One JSON document of rows, and its sha256."""
    document = msgspec.json.format(msgspec.json.encode(_Export(SCHEMA_VERSION, rows, machine)), indent=1)
    return document, hashlib.sha256(document).hexdigest()


def read_profile(file: Path) -> tuple[list[ProfileRow], list[MachineRow]]:
    """The rows of an exported JSON document, or of another machine's store. Raises UserError for anything else."""
    try:
        with file.open("rb") as f:
            head = f.read(len(SQLITE))
            if head == SQLITE:
                store = ProfileStore(file, foreign=True)
                return store.rows(), store.machine_rows()
            found = msgspec.json.decode(head + f.read(), type=_Export)
    except (OSError, msgspec.DecodeError) as e:
        raise UserError(f"{file}: neither a profile store nor an exported profile ({e})") from e
    if found.schema != SCHEMA_VERSION:
        raise UserError(f"{file}: profile schema {found.schema}, this edgeengine reads {SCHEMA_VERSION}; export it again")
    return found.rows, found.machine
