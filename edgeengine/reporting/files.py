"""Files that are there whole or not at all: written aside, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from edgeengine.errors import UserError


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """The file to write into; it takes its place when the block is left in order, and is gone when it is not.

    Raises UserError when it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as f:
                yield f
            Path(aside).chmod(0o644)
            Path(aside).replace(path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
    except OSError as e:
        raise UserError(f"{path}: cannot write it ({e.strerror}); give another place") from e


def write_file(path: Path, data: bytes) -> None:
    """Raises UserError when it cannot be written."""
    with writing(path) as f:
        f.write(data)
