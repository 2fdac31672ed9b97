"""The virtual clock: threads wake one at a time, in the order of a discrete-event simulator."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeengine.clock import ORDER_FINISH, ORDER_MAIN, ORDER_RELEASE, ORDER_START, MonotonicClock
from edgeengine.errors import InternalError
from edgeengine.testing import VirtualClock


def test_time_jumps_to_what_happens_next() -> None:
    clock = VirtualClock()
    for at in (5, 5_000_000_000, 3):  # the past is now
        clock.sleep_until(at, ORDER_MAIN, 0)
    assert clock.now_ns() == 5_000_000_000


sleeper = st.tuples(st.integers(0, 3), st.sampled_from([ORDER_FINISH, ORDER_RELEASE, ORDER_START]), st.integers(0, 3))


@settings(max_examples=50, deadline=None)
@given(st.lists(sleeper, min_size=1, max_size=8))
def test_threads_wake_by_time_then_order_then_index_then_in_turn(sleepers: list[tuple[int, int, int]]) -> None:
    clock, woken = VirtualClock(), []

    def body(number: int) -> None:
        at, order, index = sleepers[number]
        clock.sleep_until(10 + at, order, index)
        woken.append(((clock.now_ns(), order, index), number))

    threads = [clock.start_thread(lambda n=n: body(n), f"sleeper {n}") for n in range(len(sleepers))]
    for thread in threads:
        clock.join(thread)
    assert woken == sorted(((10 + at, order, index), n) for n, (at, order, index) in enumerate(sleepers))


def test_mailbox_hands_over_at_once_and_in_order() -> None:
    clock, got = VirtualClock(), []
    box = clock.mailbox(ORDER_START, 0)

    def reader() -> None:
        got.extend((box.get(), clock.now_ns()) for _ in range(3))

    thread = clock.start_thread(reader, "reader")
    clock.sleep_until(7, ORDER_MAIN, 0)
    box.put("a")
    box.put("b")
    clock.sleep_until(9, ORDER_MAIN, 0)
    box.put("c")
    clock.join(thread)
    assert got == [("a", 7), ("b", 7), ("c", 9)]


def test_mailbox_gives_up_at_the_time_given() -> None:
    clock = VirtualClock()
    box = clock.mailbox(ORDER_MAIN, 0)
    assert box.get(until_ns=8) is None
    assert clock.now_ns() == 8
    box.put("x")
    assert box.get(until_ns=8) == "x"
    assert box.get(until_ns=3) is None
    assert clock.now_ns() == 8


def test_threads_that_all_wait_for_each_other_are_found() -> None:
    clock = VirtualClock()
    with pytest.raises(InternalError, match="every thread waits"):
        clock.mailbox(ORDER_MAIN, 0).get()


def test_thread_that_fails_lets_the_others_go_on() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    clock, hook = VirtualClock(), threading.excepthook
    failed: list[object] = []
    threading.excepthook = lambda args: failed.append(args.exc_type)
    try:
        thread = clock.start_thread(fail, "failing")
        clock.join(thread)
        clock.join(thread)
    finally:
        threading.excepthook = hook
    assert failed == [ZeroDivisionError]


def test_monotonic_mailbox_keeps_order_and_gives_up() -> None:
    clock = MonotonicClock()
    box = clock.mailbox(ORDER_START, 0)
    box.put(1)
    box.put(2)
    assert [box.get(), box.get(until_ns=0), box.get(until_ns=0)] == [1, 2, None]
    thread = clock.start_thread(lambda: box.put(3), "putter")
    assert box.get() == 3
    clock.join(thread)
    assert not thread.is_alive()
