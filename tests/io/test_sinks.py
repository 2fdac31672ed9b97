"""Sinks never keep whoever submits waiting, and count what they could not hand on; opening and closing keep their order."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from edgeengine.errors import DeviceError, UserError
from edgeengine.io import CallbackSink, SerialSink, opened
from edgeengine.io.serial_line import SerialLine

LONG_S = 20.0


def test_items_arrive_in_order_and_all_before_it_closes() -> None:
    got: list[int] = []
    sink = CallbackSink(got.append, waiting=100)
    with opened([sink]):
        for i in range(100):
            sink.submit(i)
    assert got == list(range(100)) and sink.delivered == 100 and not sink.dropped and not sink.failed
    sink.submit(100)
    sink.close()
    assert len(got) == 100


def test_a_slow_receiver_gets_the_newest() -> None:
    got: list[int] = []
    began, go_on = threading.Event(), threading.Event()

    def slow(item: int) -> None:
        began.set()
        assert go_on.wait(LONG_S)
        got.append(item)

    sink = CallbackSink(slow, waiting=3)
    with opened([sink]):
        sink.submit(0)
        assert began.wait(LONG_S)
        for i in range(1, 11):
            sink.submit(i)
        go_on.set()
    assert got == [0, 8, 9, 10] and sink.dropped == 7 and sink.delivered == 4


def test_a_fault_in_a_callback_is_counted_and_the_next_delivered() -> None:
    got: list[float] = []
    sink = CallbackSink(lambda item: got.append(1 / item))
    with opened([sink]):
        for item in (1, 0, 2):
            sink.submit(item)
    assert got[0] == 1 and sink.failed >= 1 and isinstance(sink.fault, ZeroDivisionError)
    assert sink.delivered + sink.failed == 3
    with pytest.raises(UserError, match="at least one"):
        CallbackSink(print, waiting=0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
def test_an_actuator_gets_its_messages_and_one_that_never_reads_holds_nobody_up() -> None:
    master, slave = os.openpty()
    line = SerialLine(os.ttyname(slave), 115200, lambda *_: None, lambda: None)
    sink = SerialSink(line, lambda item: f"{item}\n".encode() if item != "nothing" else None)
    try:
        with opened([sink]):
            for item in ("left", "nothing", "right"):
                sink.submit(item)
        received = b""
        while received.count(b"\n") < 2:
            received += os.read(master, 100)
        assert received == b"left\nright\n" and sink.delivered == 3
        deaf = SerialSink(SerialLine(os.ttyname(slave), 115200, lambda *_: None, lambda: None), lambda item: b"x" * item)
        with opened([deaf]):
            deaf.submit(200_000)
            deaf.submit(1)
        assert deaf.failed and isinstance(deaf.fault, DeviceError)
    finally:
        os.close(slave)
        os.close(master)


class End:
    def __init__(self, name: str, told: list[str], fault: bool = False):
        self.name, self.told, self.fault = name, told, fault

    def open(self) -> None:
        if self.fault:
            raise DeviceError(f"{self.name} cannot be opened")
        self.told.append(f"open {self.name}")

    def close(self) -> None:
        self.told.append(f"close {self.name}")


def test_opened_once_closed_in_reverse_and_nothing_is_left_open() -> None:
    told: list[str] = []
    a, b = End("a", told), End("b", told)
    with opened([a, object(), b, a]):
        told.append("-")
    assert told == ["open a", "open b", "-", "close b", "close a"]
    told.clear()
    with pytest.raises(DeviceError, match="c cannot"), opened([a, End("c", told, fault=True), b]):
        pass
    assert told == ["open a", "close c", "close a"]


def test_a_port_that_is_not_there(tmp_path: Path) -> None:
    sink = SerialSink(SerialLine(str(tmp_path / "none"), 9600, lambda *_: None, lambda: None), bytes)
    with pytest.raises(DeviceError, match="no such port"), opened([sink]):
        pass
