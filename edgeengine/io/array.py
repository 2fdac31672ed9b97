"""An array, or a WAV file, as a microphone: at time t it has delivered the samples up to t, no more."""

from __future__ import annotations

import wave
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgeengine.errors import UserError


class ArraySource:
    """Source of one input, the newest `window` samples: float32 [1, window] of one channel, [1, channels, window] of several.

    Before time 0 there was silence (zeros): windows that reach back there are whole. After the last sample there is nothing,
    and a job that asks for more fails.

    Args:
        samples: [n] or [n, channels].
        rate_hz: pace at which they are played.
        fixed: other inputs of the model, the same for every job.
    """

    def __init__(
        self,
        samples: np.ndarray,
        rate_hz: float,
        *,
        input: str,
        window: int,
        fixed: Mapping[str, np.ndarray] | None = None,
    ):
        if samples.ndim not in (1, 2) or not len(samples) or rate_hz <= 0 or window < 1:
            raise UserError(
                f"array source: need samples [n] or [n, channels], a positive rate and window, not {samples.shape}, "
                f"{rate_hz} Hz, {window}"
            )
        self._samples = np.asarray(samples, np.float32)
        self._rate_hz, self._input, self._window, self._fixed = rate_hz, input, window, dict(fixed or {})

    @property
    def length_ns(self) -> int:
        """A job released until then finds its samples."""
        return int(len(self._samples) / self._rate_hz * 1e9)

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        return {self._input: self.window_at(release_ns, self._window), **self._fixed}

    def window_at(self, time_ns: int, count: int) -> np.ndarray:
        """The newest `count` samples at `time_ns`, shaped as `read` gives them. Raises UserError after the last sample."""
        end = int(time_ns * self._rate_hz // 1e9)
        if end > len(self._samples):
            raise UserError(f"array source: its {len(self._samples) / self._rate_hz:.2f} s are over")
        known = self._samples[max(end - count, 0) : max(end, 0)]
        window = np.zeros((count, *self._samples.shape[1:]), np.float32)
        window[count - len(known) :] = known
        return np.ascontiguousarray(window.T)[None]


def read_wav(file: str | Path) -> tuple[np.ndarray, int]:
    """The samples of a 16-bit PCM file, float32 [n] or [n, channels] within -1..1, and their rate in Hz.

    Raises UserError for a file that is none.
    """
    try:
        with wave.open(str(file), "rb") as wav:
            if wav.getsampwidth() != 2:
                raise UserError(f"{file}: {8 * wav.getsampwidth()} bits per sample; convert it to 16-bit PCM")
            channels, rate_hz = wav.getnchannels(), wav.getframerate()
            samples = np.frombuffer(wav.readframes(wav.getnframes()), "<i2")
    except (OSError, EOFError, wave.Error) as e:
        raise UserError(f"{file}: cannot be read as WAV ({e})") from e
    scaled = samples.astype(np.float32) / np.float32(32768)
    return (scaled if channels == 1 else scaled.reshape(-1, channels)), rate_hz
