"""Sources and sinks that hold something open: ports, files, threads. Generated sources need neither `open` nor `close`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def opened(ends: Iterable[object]) -> Iterator[None]:
    """Open those of `ends` that have an `open()`, each object once; on leaving close those that have a `close()`, last first.

    What was opened is closed too when a later one cannot be opened, whose error is raised.
    """
    with ExitStack() as stack:
        for end in {id(e): e for e in ends}.values():
            if hasattr(end, "close"):
                stack.callback(end.close)
            if hasattr(end, "open"):
                end.open()
        yield
