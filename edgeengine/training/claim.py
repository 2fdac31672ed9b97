"""One process at a time learns in a folder. The system lets go of the lock when the process ends, however it ends."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edgeengine.errors import UserError

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two processes apart there
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"


@dataclass(eq=False)
class _Lock:
    descriptor: int
    claims: int = 0


_held: dict[Path, _Lock] = {}  # by this process: a second descriptor of the file would let go of the lock when it is closed


class Claim:
    """Makes `folder` and keeps it for this process, which may claim it several times, until `release` or the end.

    Raises UserError where another process learns there, or the folder cannot be made.
    """

    _lock: _Lock | None = None

    def __init__(self, folder: Path):
        self._file = folder.absolute() / LOCK
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = self._mine() or _Lock(os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644))
        except OSError as e:
            raise UserError(f"{folder}: cannot be written ({e.strerror}); give another --state") from e
        if fcntl is not None and not lock.claims:
            try:
                fcntl.lockf(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                os.close(lock.descriptor)
                raise UserError(f"{folder}: another process learns there; end it, or give this one another --state") from e
        lock.claims += 1
        self._lock = _held[self._file] = lock

    def release(self) -> None:
        """Let others learn there. Does nothing a second time."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        lock.claims -= 1
        if not lock.claims:
            os.close(lock.descriptor)
            if _held.get(self._file) is lock:
                del _held[self._file]

    def __del__(self) -> None:
        self.release()

    def _mine(self) -> _Lock | None:
        """What this process holds already, unless the folder was removed and made anew."""
        held = _held.get(self._file)
        there = held is not None and self._file.exists() and os.fstat(held.descriptor).st_ino == self._file.stat().st_ino
        return held if there else None
