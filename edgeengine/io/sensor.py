"""A sensor on a serial line as a source: frames become samples, samples become the windows that jobs read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from edgeengine.errors import DeviceError, UserError
from edgeengine.io.framing import FrameReader, Sample, make_framing
from edgeengine.io.serial_line import SerialLine
from edgeengine.io.stream import SampleStream, StaleData

_GARBAGE_FRAMES = 8  # so many frames' worth of bytes without a frame is no boot message any more


class SerialSensor:
    """Source of one input: the newest `window` samples at `rate_hz`, float32 [1, channels, window].

    A sample is one frame of each kind in `kinds`, in that order, side by side (a WT901 sends acceleration and angular rate
    apart). `read` raises StaleData, and so fails the job, when fresh samples are wanting.

    Args:
        input: name of the model's input.
        framing: name of the wire format (edgeengine.io.framing).
        take: which of the sample's values, in the model's order; None takes all.
        scale: divisor of each value taken, to the units the model was trained in; None leaves the framing's units.
        gap_s: a hole in the samples longer than this, or so old a newest sample, makes them stale.
    """

    def __init__(
        self,
        port: str,
        *,
        input: str,
        framing: str,
        kinds: Sequence[str],
        baudrate: int,
        rate_hz: float,
        window: int,
        take: Sequence[int] | None = None,
        scale: Sequence[float] | None = None,
        gap_s: float = 0.25,
        parity: str = "N",
        dtr: bool | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ):
        made = make_framing(framing)
        for kind in kinds:
            if kind not in made.channels:
                raise UserError(f"framing {framing!r} has no {kind!r}; it has {', '.join(made.channels)}")
        sent = sum(len(made.channels[k]) for k in kinds)
        self._take = tuple(range(sent) if take is None else take)
        channels = len(self._take)
        if not all(0 <= i < sent for i in self._take):
            raise UserError(f"sensor {port}: take = {list(self._take)}, but a sample has values 0 to {sent - 1}")
        if scale is not None and len(scale) != channels:
            raise UserError(f"sensor {port}: scale has {len(scale)} values for {channels} channels")
        self._input, self._kinds, self._window, self._rate_hz = input, tuple(kinds), window, rate_hz
        self._scale = np.asarray(scale if scale is not None else [1.0] * channels, np.float32)
        self._now_ns, self._baudrate = now_ns, baudrate
        self.reader = FrameReader(made)
        self.stream = SampleStream(channels, rate_hz, kept_s=4 * max(window / rate_hz, gap_s), gap_s=gap_s)
        self.line = SerialLine(port, baudrate, self._bytes, self._broke, parity=parity, dtr=dtr, now_ns=now_ns)
        self._parts: dict[str, tuple[float, ...]] = {}
        self.last_byte_ns: int | None = None  # when the newest sample's last byte came

    def open(self) -> None:
        """Start listening; does nothing when that is done. Raises DeviceError when the port cannot be opened."""
        self.line.open()

    def close(self) -> None:
        self.line.close()

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        try:
            window = self.stream.window(self._window, self._rate_hz, self._now_ns())
        except StaleData as e:
            raise StaleData(f"stale: {e}{self._suspicion()}") from e
        return {self._input: (window / self._scale).T[None].copy()}

    @property
    def fresh(self) -> bool:
        """True while samples keep coming."""
        newest = self.stream.newest_ns
        return newest is not None and self._now_ns() - newest <= self.stream.gap_ns

    def wait_ready(self, timeout_s: float) -> None:
        """Block until a whole window has come. Raises DeviceError, saying what seems wrong, when that takes too long."""
        end = self._now_ns() + round(timeout_s * 1e9)
        while True:
            try:
                self.stream.window(self._window, self._rate_hz, self._now_ns())
                return
            except StaleData as e:
                if self._now_ns() > end:
                    raise DeviceError(f"{self.line.port}: {e}{self._suspicion()}") from e
            time.sleep(0.01)

    def _suspicion(self) -> str:
        name, got = self.reader.framing.name, self.line.received
        if not self.line.connected:
            return "; the port is away, waiting for it to come back"
        if not got:
            return "; not a byte has come: is the device on, and sending?"
        if not self.reader.frames and got > _GARBAGE_FRAMES * self.reader.framing.longest:
            return f"; {got} bytes and not one {name} frame: is {self._baudrate} the device's baud rate, and {name} its format?"
        return ""

    def _bytes(self, data: bytes, at_ns: int) -> None:
        for arrived in self.reader.feed(data, at_ns):
            self._sample(arrived.sample, arrived.at_ns)

    def _sample(self, sample: Sample, at_ns: int) -> None:
        """Join the kinds: a sample is whole with the last of them; one whose parts were lost is left out."""
        if sample.kind not in self._kinds:
            return
        if sample.kind == self._kinds[0]:
            self._parts.clear()
        self._parts[sample.kind] = sample.values
        if sample.kind == self._kinds[-1] and len(self._parts) == len(self._kinds):
            values = [v for k in self._kinds for v in self._parts[k]]
            self._parts.clear()
            if len(values) > max(self._take):
                self.stream.append([values[i] for i in self._take], at_ns)
                self.last_byte_ns = at_ns

    def _broke(self) -> None:
        self.reader.reopened()
        self._parts.clear()
