"""Run measuring code where it will run for real: on a thread pinned to the processor's host core."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from edgeengine.clock import tighten_timer_slack
from edgeengine.spec import Processor


def run_pinned(processor: Processor, code: Callable[[], None]) -> None:
    """Run `code` on a fresh pinned thread and wait; its exception is raised here."""
    failure: list[BaseException] = []

    def body() -> None:
        tighten_timer_slack()
        pin(processor.host_core)
        try:
            code()
        except BaseException as e:  # noqa: BLE001  handed to the waiting thread
            failure.append(e)

    thread = threading.Thread(target=body, name=f"edgeengine measuring {processor.name}", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


def pin(core: int | None) -> None:
    """Keep the calling thread on one core, where the platform can."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
