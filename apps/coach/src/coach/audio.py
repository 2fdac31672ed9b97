"""A microphone before which a synthetic sound plays, and what each audio model wants of it.

All sound is made beforehand: reading is one copy of a slice. The sound is a loop, so a run may last as long as it likes
and times before 0 have sound too.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from coach.sound import resample, synthesize

SPEECH_RATE_HZ = 16_000
MUSIC_RATE_HZ = 22_050
NS_PER_S = 1_000_000_000

SILERO_NEW, SILERO_CONTEXT = 512, 64
MEL_FRAMES = 8
# A frame spans 512 samples and the next begins 160 later: so many samples give exactly the 8 frames that follow those
# of the job before, the last of them ending at the newest sample.
MEL_SAMPLES = 512 + (MEL_FRAMES - 1) * 160
PITCH_SAMPLES = 43_844
PITCH_INPUT = "serving_default_input_2:0"


class Track:
    """One sound at every rate in `rates_hz` (22,050 Hz or less), a loop of `sound.SECONDS` that begins at time 0."""

    def __init__(self, seed: int = 7, rates_hz: Iterable[int] = (SPEECH_RATE_HZ, MUSIC_RATE_HZ)):
        loop = synthesize(seed)
        # Twice the loop: any stretch up to a whole loop is one slice.
        self._twice = {rate: np.tile(loop if rate == MUSIC_RATE_HZ else resample(loop, rate), 2) for rate in rates_hz}

    def newest(self, rate_hz: int, count: int, time_ns: int) -> np.ndarray:
        """The last `count` samples before `time_ns` (which may be negative): float32 [count], within -1..1, a copy.

        `rate_hz` is one of those given; `count` is at most a loop.
        """
        twice = self._twice[rate_hz]
        start = (time_ns * rate_hz // NS_PER_S - count) % (len(twice) // 2)
        return twice[start : start + count].copy()


class SileroSource:
    """Source `silero`: {"input": float32 [1, 576], "sr": int64 []}: 32 ms of new sound, 4 ms before them."""

    def __init__(self, track: Track):
        self._track, self._rate = track, np.array(SPEECH_RATE_HZ, np.int64)

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        sound = self._track.newest(SPEECH_RATE_HZ, SILERO_CONTEXT + SILERO_NEW, release_ns)
        return {"input": sound[None], "sr": self._rate}


class MelSource:
    """Source `mel`: {"input": float32 [1, 1632]}: 80 ms of new sound and the overlap that makes 8 new frames of it.

    The scale is -1..1, as in the package the model comes from; other users of the same model feed the range of int16.
    """

    def __init__(self, track: Track):
        self._track = track

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        return {"input": self._track.newest(SPEECH_RATE_HZ, MEL_SAMPLES, release_ns)[None]}


class PitchSource:
    """Source `pitch`: {"serving_default_input_2:0": float32 [1, 43844, 1]}: the newest 1.99 s at 22,050 Hz."""

    def __init__(self, track: Track):
        self._track = track

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        return {PITCH_INPUT: self._track.newest(MUSIC_RATE_HZ, PITCH_SAMPLES, release_ns)[None, :, None]}
