"""Keep the weights of a large model from piling up in memory while it runs.

ONNX Runtime maps external weights from their file, so every page a run reads stays resident: a 2 GB model takes 2 GB.
Nobody writes to them, so they can go at any time and come back from the file when read again: while a block of
`dropping` runs, a thread drops them whenever too many have gathered. Linux only; elsewhere the block runs as it is.
Were a page written to after all, its contents would be lost, and verification would say so.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

# Checked this often, and dropped above this much.
_INTERVAL_S = 0.004
_ALLOWED_BYTES = 128 << 20


@contextlib.contextmanager
def dropping(files: Sequence[Path]) -> Iterator[None]:
    """While the block runs, drop the resident pages of mappings of `files` whenever they exceed 128 MB."""
    if not files or not sys.platform.startswith("linux"):
        yield
        return
    names = {str(f.resolve()) for f in files}
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(_INTERVAL_S):
            if _resident_file_bytes() > _ALLOWED_BYTES:
                for start, length in _mappings(names):
                    # Refused only where the mapping has gone meanwhile, and then there is nothing to drop.
                    libc.madvise(start, length, mmap.MADV_DONTNEED)

    thread = threading.Thread(target=watch, name="edgeengine-resident", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _resident_file_bytes() -> int:
    """Resident pages of this process that come from files."""
    return int(Path("/proc/self/statm").read_text().split()[2]) * mmap.PAGESIZE


def _mappings(names: set[str]) -> Iterator[tuple[int, int]]:
    """(address, bytes) of every mapping of one of the files."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].removesuffix(" (deleted)") in names:
            start, end = (int(a, 16) for a in fields[0].split("-"))
            yield start, end - start
