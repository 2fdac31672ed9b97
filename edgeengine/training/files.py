"""Files that survive a kill at any moment: written aside, flushed to the disk, then renamed."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(file: Path, raw: bytes) -> None:
    """Aside, flushed to disk, then renamed; the folder's entry as well."""
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    with aside.open("wb") as f:
        f.write(raw)
        f.flush()
        os.fsync(f.fileno())
    aside.replace(file)
    sync_folder(file.parent)


def sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
