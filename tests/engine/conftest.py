"""No engine leaves a thread behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    """No engine leaves a thread behind."""
    yield
    left = [t.name for t in threading.enumerate() if t.name.startswith("edgeengine")]
    assert not left, f"still running: {left}"
