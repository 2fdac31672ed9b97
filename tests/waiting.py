"""Waiting for other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for another thread to have done it; fails if it does not."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        pause.wait(0.005)
