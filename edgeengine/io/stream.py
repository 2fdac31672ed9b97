"""Samples from a sensor as a stream with time stamps: a ring of the newest, and windows at a steady rate out of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from edgeengine.errors import DeviceError, UserError

_GAIN = 0.05  # of the clock filter: how much of an arrival's lateness is believed


class StaleData(DeviceError):
    """There are no fresh samples for what was asked: a job that needs them fails, nothing is decided on old data."""


class SampleStream:
    """The newest samples of `channels` values each, with the time each was taken.

    Samples come in bursts (a serial adapter hands on several frames at once), but were taken at a steady `rate_hz`. Their times
    are an exponential filter of the arrivals (an alpha filter at the nominal period); a jump of more than `gap_s` starts anew.
    One thread appends, any thread reads.

    Args:
        channels: values per sample.
        rate_hz: nominal rate of the samples.
        kept_s: seconds of samples to keep.
        gap_s: a window with a hole longer than this, or whose newest sample is older than this, is stale.
    """

    def __init__(self, channels: int, rate_hz: float, *, kept_s: float = 60.0, gap_s: float = 0.25):
        if channels < 1 or not 0 < rate_hz < 1e6 or not 0 < gap_s < kept_s:
            raise UserError(f"sample stream: {channels} channels at {rate_hz} Hz, gap {gap_s} s of {kept_s} s kept cannot be")
        self.rate_hz, self.gap_ns = rate_hz, round(gap_s * 1e9)
        size = max(round(kept_s * rate_hz), 2)
        self._times = np.zeros(size, np.int64)
        self._values = np.zeros((size, channels), np.float32)
        self._count = 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Samples appended so far."""
        return self._count

    @property
    def newest_ns(self) -> int | None:
        """When the newest sample was taken; None before the first."""
        with self._lock:
            return int(self._times[(self._count - 1) % len(self._times)]) if self._count else None

    def append(self, values: Sequence[float], at_ns: int) -> None:
        """A sample that arrived at `at_ns`."""
        with self._lock:
            size, taken_ns = len(self._times), at_ns
            if self._count:
                expected = int(self._times[(self._count - 1) % size]) + round(1e9 / self.rate_hz)
                late = at_ns - expected
                if abs(late) <= self.gap_ns:
                    # Later than it arrived it was not taken; time never runs back.
                    taken_ns = max(min(expected + round(_GAIN * late), at_ns), expected - round(0.9e9 / self.rate_hz))
            self._times[self._count % size] = taken_ns
            self._values[self._count % size] = values
            self._count += 1

    def window(self, count: int, rate_hz: float, until_ns: int) -> np.ndarray:
        """`count` samples at `rate_hz`, the last of them the newest at `until_ns`: float32 [count, channels], interpolated
        linearly by time stamp.

        Raises StaleData when the newest is more than gap_s older than `until_ns`, or a hole that long lies in the window, or
        the stream does not reach back so far.
        """
        with self._lock:
            kept = min(self._count, len(self._times))
            order = (self._count - kept + np.arange(kept)) % len(self._times)
            times, values = self._times[order], self._values[order]
        known = int(np.searchsorted(times, until_ns, "right"))
        if not known:
            raise StaleData("no sample has come yet")
        times, values = times[:known], values[:known]
        age_ns = until_ns - int(times[-1])
        if age_ns > self.gap_ns:
            raise StaleData(f"the newest sample is {age_ns / 1e9:.2f} s old")
        wanted = times[-1] - np.round(np.arange(count - 1, -1, -1) * (1e9 / rate_hz)).astype(np.int64)
        first = int(np.searchsorted(times, wanted[0], "right")) - 1
        slack_ns = round(1e9 / self.rate_hz)  # the oldest point may lie up to a period before the oldest sample
        if first < 0 and wanted[0] < times[0] - slack_ns:
            raise StaleData(f"only {(times[-1] - times[0]) / 1e9:.2f} s of samples so far, {count / rate_hz:.2f} s are needed")
        times, values = times[max(first, 0) :], values[max(first, 0) :]
        hole_ns = int(np.diff(times).max(initial=0))
        if hole_ns > self.gap_ns:
            raise StaleData(f"a hole of {hole_ns / 1e9:.2f} s in the samples")
        since = (wanted - times[0]).astype(np.float64)
        at = (times - times[0]).astype(np.float64)
        return np.stack([np.interp(since, at, values[:, c]) for c in range(values.shape[1])], 1).astype(np.float32)
