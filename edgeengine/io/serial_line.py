"""A serial port that comes back: read on a thread of its own, closed and opened again when it fails (pyserial)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from edgeengine.errors import DeviceError, UserError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0  # back-off between attempts to open
_READ_TIMEOUT_S = 0.05
_WRITE_TIMEOUT_S = 0.2  # a write with nobody reading would block for ever
_AT_ONCE = 4096


class SerialLine:
    """Bytes from a port go to `on_bytes(data, at_ns)`, with the time of the read. `on_break()` is called when a port that was
    open is lost. Both run on the line's thread.

    Args:
        port: a device name, or a pyserial URL such as socket://host:port.
        baudrate, parity: as the device is set; parity "N", "E" or "O".
        dtr: the line that resets many boards on opening; None leaves it alone.
    """

    def __init__(
        self,
        port: str,
        baudrate: int,
        on_bytes: Callable[[bytes, int], None],
        on_break: Callable[[], None],
        *,
        parity: str = "N",
        dtr: bool | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ):
        try:
            import serial
        except ImportError as e:
            raise UserError("serial ports need pyserial: pip install 'edgeengine[serial]'") from e
        self._serial: Any = serial
        self._faults = (serial.SerialException, OSError, TypeError)  # pyserial raises any of them when a port goes away
        self.port, self._baudrate, self._parity, self._dtr = port, baudrate, parity, dtr
        self._on_bytes, self._on_break, self._now_ns = on_bytes, on_break, now_ns
        self._handle: Any = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.connected = False
        self.breaks = 0
        self.received = 0

    def open(self) -> None:
        """Open the port and start reading; does nothing a second time. Raises DeviceError: what is wrong and what to try."""
        if self._thread is not None:
            return
        self._stop.clear()
        try:
            self._connect()
        except self._faults as e:
            raise self._explained(e) from e
        except ValueError as e:
            raise UserError(f"{self.port}: {e}") from e
        self._thread = threading.Thread(target=self._run, name=f"edgeengine serial {self.port}", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Raises DeviceError when the port is away or nobody takes the bytes within 0.2 s."""
        handle = self._handle
        if handle is None:
            raise DeviceError(f"{self.port}: not connected")
        try:
            handle.write(data)
        except self._faults as e:
            raise DeviceError(f"{self.port}: write failed ({e})") from e

    def close(self) -> None:
        """Stop reading and close the port. Does nothing a second time."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._disconnect()

    def _connect(self) -> None:
        handle = self._serial.serial_for_url(self.port, do_not_open=True)
        handle.baudrate, handle.parity = self._baudrate, self._parity
        handle.timeout, handle.write_timeout = _READ_TIMEOUT_S, _WRITE_TIMEOUT_S
        if "://" not in self.port:
            handle.exclusive = True
        if self._dtr is not None:
            handle.dtr = self._dtr
        handle.open()
        self._handle, self.connected = handle, True

    def _disconnect(self) -> None:
        handle, self._handle, self.connected = self._handle, None, False
        if handle is not None:
            try:
                handle.close()
            except self._faults:  # it is gone: nothing is left to close
                return

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._handle is None and not self._reconnect():
                return
            try:
                data = self._handle.read(min(max(self._handle.in_waiting, 1), _AT_ONCE))
            except self._faults:
                self._disconnect()
                self.breaks += 1
                self._on_break()
                continue
            if data:
                self.received += len(data)
                self._on_bytes(data, self._now_ns())

    def _reconnect(self) -> bool:
        """Try until the port is back. False if the line was closed meanwhile."""
        pause_s = _FIRST_PAUSE_S
        while not self._stop.wait(pause_s):
            try:
                self._connect()
            except self._faults:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            return True
        return False

    def _explained(self, fault: Exception) -> DeviceError:
        text = str(fault)
        if isinstance(fault, PermissionError) or "Permission denied" in text:
            advice = "permission denied; add the user to the port's group (often dialout) and log in again"
        elif "No such file" in text or "could not find" in text:
            advice = f"no such port; there are: {_ports()}"
        elif "Inappropriate ioctl" in text or "Is a directory" in text:
            advice = f"not a serial port; there are: {_ports()}"
        elif "exclusively lock" in text or "busy" in text or "Resource temporarily unavailable" in text:
            advice = "in use by another program; close it"
        else:
            advice = f"cannot be opened ({text})"
        return DeviceError(f"{self.port}: {advice}")


def _ports() -> str:
    from serial.tools import list_ports

    return ", ".join(p.device for p in list_ports.comports()) or "none"
