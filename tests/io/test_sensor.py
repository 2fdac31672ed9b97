"""A sensor on a pseudo-terminal: frames become windows, and a port that goes away comes back."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeengine.errors import DeviceError, UserError
from edgeengine.io.framing import Sample, make_framing
from edgeengine.io.sensor import SerialSensor
from edgeengine.io.serial_line import SerialLine
from edgeengine.io.stream import StaleData
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals")
WT901 = make_framing("wt901")
KINDS = ("acceleration", "angular rate")


class Device:
    """A board on a pty, found under `name` (a link, as udev makes them), that can be unplugged and plugged in again."""

    def __init__(self, name: Path):
        self.name = name
        self.plug_in()

    def plug_in(self) -> None:
        self.master, self._slave = os.openpty()
        self.name.unlink(missing_ok=True)
        self.name.symlink_to(os.ttyname(self._slave))

    def unplug(self) -> None:
        self.name.unlink()
        os.close(self._slave)
        os.close(self.master)

    def send(self, data: bytes) -> None:
        os.write(self.master, data)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    made = Device(tmp_path / "ttyUSB7")
    yield made
    if made.name.exists():
        made.unplug()


def sensor(device: Device, **more: Any) -> SerialSensor:
    options: dict[str, Any] = {
        "input": "window", "framing": "wt901", "kinds": KINDS, "baudrate": 115200, "rate_hz": 50, "window": 8, "gap_s": 5.0,
    }  # fmt: skip
    return SerialSensor(str(device.name), **(options | more))


def frames(values: float) -> bytes:
    return b"".join(WT901.encode(Sample(k, (values, values / 2, -values))) for k in KINDS)


def test_frames_become_windows(device: Device) -> None:
    clock = [0]
    made = sensor(device, scale=(1, 1, 1, 2, 2, 2), now_ns=lambda: clock[0])
    made.open()
    try:
        with pytest.raises(StaleData, match="not a byte has come"):
            made.read(0, 0)
        for i in range(12):
            clock[0] += 20_000_000
            device.send(frames(i / 2))
            until(lambda count=i + 1: made.stream.count == count)  # type: ignore[misc]
        window = made.read(0, 0)["window"]
    finally:
        made.close()
    assert window.shape == (1, 6, 8) and window.dtype == np.float32
    np.testing.assert_allclose(window[0, :, -1], [5.5, 2.75, -5.5, 2.75, 1.375, -2.75], atol=0.05)
    assert made.reader.losses["skipped"] == 0 and made.fresh


def test_a_lost_frame_costs_one_sample_not_the_order(device: Device) -> None:
    """Without its angular rate an acceleration is left out; what follows is joined rightly."""
    made = sensor(device)
    made.open()
    try:
        lone = WT901.encode(Sample("acceleration", (9.0, 9.0, 9.0)))
        device.send(frames(1) + lone + frames(2) + WT901.encode(Sample("angle", (1.0, 2.0, 3.0))) + frames(3))
        until(lambda: made.reader.frames == 8)
        until(lambda: made.stream.count == 3)
    finally:
        made.close()


def test_an_unplugged_port_comes_back(device: Device) -> None:
    made = sensor(device)
    made.open()
    try:
        device.send(frames(1) * 9)
        until(lambda: made.stream.count == 9)
        device.unplug()
        until(lambda: not made.line.connected)
        assert made.line.breaks == 1
        with pytest.raises(DeviceError, match="not connected"):
            made.line.write(b"x")
        device.plug_in()
        until(lambda: made.line.connected)
        device.send(frames(2)[5:] + frames(2) * 3)
        until(lambda: made.stream.count == 12)
    finally:
        made.close()
    assert made.reader.losses["skipped"] > 0  # the partial frame


def test_garbage_is_told_from_silence(device: Device) -> None:
    made = sensor(device)
    made.open()
    try:
        device.send(bytes([0x55, 0x13]) * 200)
        until(lambda: made.line.received == 400)
        with pytest.raises(StaleData, match=r"400 bytes and not one wt901 frame: is 115200 the device's baud rate"):
            made.read(0, 0)
        with pytest.raises(DeviceError, match="baud rate"):
            made.wait_ready(0.0)
    finally:
        made.close()


def test_ports_that_cannot_be_opened(device: Device, tmp_path: Path) -> None:
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    with pytest.raises(DeviceError, match="no such port; there are"):
        SerialLine(str(tmp_path / "ttyUSB0"), 9600, nothing, nothing).open()
    first = SerialLine(str(device.name), 9600, nothing, nothing)
    first.open()
    try:
        with pytest.raises(DeviceError, match="in use by another program"):
            SerialLine(str(device.name), 9600, nothing, nothing).open()
    finally:
        first.close()
        first.close()
    with pytest.raises((UserError, DeviceError), match="nowhere"):
        SerialLine("nowhere://x", 9600, nothing, nothing).open()


def test_what_is_no_serial_port(tmp_path: Path) -> None:
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    for name in ("", "file", "fifo"):
        with pytest.raises(DeviceError, match="not a serial port; there are"):
            SerialLine(str(tmp_path / name), 9600, nothing, nothing).open()


def test_a_port_that_may_not_be_opened(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel answers one who is not in the port's group; who runs as root would be let in."""
    opened = os.open

    def refused(path: Any, *more: Any) -> int:
        if str(path) == str(device.name):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *more)

    monkeypatch.setattr("serial.serialposix.os.open", refused)
    with pytest.raises(DeviceError, match="permission denied; add the user to the port's group") as told:
        SerialLine(str(device.name), 9600, lambda *_: None, lambda: None).open()
    assert told.value.exit_code == 4 and "\n" not in str(told.value)


def test_a_write_that_nobody_reads_gives_up(device: Device) -> None:
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    line = SerialLine(str(device.name), 115200, nothing, nothing)
    line.open()
    try:
        with pytest.raises(DeviceError, match="write failed"):
            line.write(b"x" * 200_000)
    finally:
        line.close()


def test_sensors_that_cannot_be() -> None:
    options: dict[str, Any] = {"input": "x", "framing": "wt901", "baudrate": 9600, "rate_hz": 50, "window": 8}
    with pytest.raises(UserError, match="has no 'pressure'; it has acceleration"):
        SerialSensor("p", kinds=("pressure",), **options)
    with pytest.raises(UserError, match="2 values for 3 channels"):
        SerialSensor("p", kinds=("angle",), scale=(1, 2), **options)
