"""Replay of a recorded stream at its true pace: at time t it has delivered the samples up to t, no more."""

from __future__ import annotations

import numpy as np

from edgeengine.errors import UserError


class StreamReplay:
    """A recording as a sensor that runs: `window_at(t)` is what a device would hold at time t.

    Args:
        samples: [n, channels], any dtype.
        rate_hz: pace of the samples.
        window: samples per window.
        start: sample that arrives at time 0; at least `window` of them should lie before it, to prime the first window.
    """

    def __init__(self, samples: np.ndarray, rate_hz: float, window: int, start: int):
        if samples.ndim != 2 or rate_hz <= 0 or not 0 < window <= start <= len(samples):
            raise UserError(
                f"stream replay: need samples [n, channels], a positive rate and 0 < window ({window}) <= start ({start}) "
                f"<= n ({len(samples)})"
            )
        self._samples, self._rate_hz, self._window, self._start = samples, rate_hz, window, start

    def window_at(self, time_ns: int) -> np.ndarray:
        """The newest `window` samples at `time_ns`, shape [window, channels].

        Raises UserError outside the recording: a replay never invents samples.
        """
        end = self._start + int(time_ns * self._rate_hz // 1e9)
        if end < self._window or end > len(self._samples):
            raise UserError(
                f"stream replay: no window at {time_ns / 1e9:.3f} s; the recording holds {len(self._samples)} samples"
            )
        return self._samples[end - self._window : end]
