"""Where threads run and how urgently: pinned to a core, real-time where the system permits.

Measuring code runs here as serving code does, on a thread pinned to the processor's host core, with a worker's priority.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from edgeengine.clock import Thread, tighten_timer_slack
from edgeengine.spec import Processor

WORKER_PRIORITY, TIMER_PRIORITY = 1, 2


def run_pinned(processor: Processor, code: Callable[[], None]) -> None:
    """Run `code` on a fresh pinned thread, with a worker's priority, and wait; its exception is raised here."""
    failure: list[BaseException] = []
    begun = threading.Event()

    def body() -> None:
        begun.set()
        tighten_timer_slack()
        pin(processor.host_core)
        real_time(WORKER_PRIORITY)
        try:
            code()
        except BaseException as e:  # noqa: BLE001  handed to the waiting thread
            failure.append(e)

    thread = Thread(body, f"edgeengine measuring {processor.name}")
    try:
        thread.start()
    except KeyboardInterrupt:  # it may be on its way all the same
        if begun.wait(1):
            thread.join()
        raise
    thread.join()
    if failure:
        raise failure[0]


def pin(core: int | None) -> None:
    """Keep the calling thread on one core, where the platform can."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def real_time(priority: int) -> bool:
    """Give the calling thread a real-time priority (0: back to normal). False where that is not permitted, or not Linux.

    A waking real-time thread takes the core from a busy application thread at once instead of after its time slice.
    """
    if not hasattr(os, "sched_setscheduler"):
        return False
    # Threads that this one starts (a library's, a source's) must not inherit it.
    policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK if priority else os.SCHED_OTHER
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError:  # needs CAP_SYS_NICE or an RLIMIT_RTPRIO; everything works without, with longer tails
        return False
    return True
