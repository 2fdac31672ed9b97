"""A board that is not there: a pseudo-terminal under a stable name, that can be unplugged and plugged in again."""

from __future__ import annotations

import contextlib
import os
import termios
import tty
from pathlib import Path

import numpy as np

from edgeengine.errors import UserError


class Board:
    """`port` is a symbolic link to the terminal's present device, as udev makes them for real ones.

    Who opens the port at another rate than `baudrate` hears garbage, as over a real line. Like a device, the board waits for
    nobody: what does not fit into the line's buffer is lost, and counted in `unheard`.
    """

    def __init__(self, port: Path, baudrate: int, rng: np.random.Generator):
        speed = getattr(termios, f"B{baudrate}", None)
        if speed is None:
            raise UserError(f"emulator: {baudrate} is no baud rate of this system; 9600 or 115200 are")
        self.port, self._speed, self._rng = port, speed, rng
        self._ends: tuple[int, int] | None = None
        self.unheard = 0

    def plug_in(self) -> None:
        """Raises UserError where the port's name cannot be made."""
        master, line = os.openpty()
        self._ends = (master, line)
        os.set_blocking(master, False)
        tty.setraw(line)
        self._set_speed(line)
        try:
            if self.port.is_symlink():
                self.port.unlink()
            self.port.symlink_to(os.ttyname(line))
        except OSError as e:
            self._close()
            raise UserError(f"emulator: {self.port}: cannot be made ({e.strerror}); give another --port") from e

    def _set_speed(self, line: int) -> None:
        settings = termios.tcgetattr(line)
        settings[4] = settings[5] = self._speed
        termios.tcsetattr(line, termios.TCSANOW, settings)

    @property
    def plugged(self) -> bool:
        return self._ends is not None

    def send(self, data: bytes) -> None:
        """Does nothing while unplugged."""
        if self._ends is None or not data:
            return
        master, line = self._ends
        if termios.tcgetattr(line)[5] != self._speed:
            data = self._rng.bytes(len(data))
        try:
            sent = os.write(master, data)
        except BlockingIOError:
            sent = 0
        self.unheard += len(data) - sent

    def unplug(self) -> None:
        """Does nothing a second time."""
        if self._ends is not None:
            with contextlib.suppress(FileNotFoundError):  # somebody else removed the link: it is gone, as it should be
                self.port.unlink()
            self._close()

    def _close(self) -> None:
        ends, self._ends = self._ends, None
        for end in ends or ():
            os.close(end)
