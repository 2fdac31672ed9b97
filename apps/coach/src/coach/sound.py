"""Synthetic sound: a voice that speaks nonsense over a quiet melody. Seeded, never silent, made to be played in a loop.

The voice is a source-filter model: glottal pulses and breath, through three formant resonators per vowel, shaped into
syllables, phrases and pauses. Filters work by FFT over the whole loop, so its end runs into its beginning.
"""

from __future__ import annotations

import numpy as np

RATE_HZ = 22_050
SECONDS = 12
"""Length of the loop; whole at every rate, so that the loop is as long at each."""

_VOWEL_FORMANTS_HZ = (
    (730.0, 1090.0, 2440.0),
    (270.0, 2290.0, 3010.0),
    (300.0, 870.0, 2240.0),
    (530.0, 1840.0, 2480.0),
    (570.0, 840.0, 2410.0),
)
_FORMANT_WIDTHS_HZ = (80.0, 100.0, 140.0)
_SCALE_MIDI = (60, 62, 64, 65, 67, 69, 71, 72)
_VOICE, _HISS, _MELODY, _ROOM = 0.5, 0.15, 0.1, 0.001  # peaks; the last is the standard deviation of the noise floor


def synthesize(seed: int) -> np.ndarray:
    """The loop at `RATE_HZ`: float32 [RATE_HZ * SECONDS], within -1..1."""
    rng = np.random.default_rng(seed)
    sound = _voice(rng) + _MELODY * _peak_one(_melody(rng))
    return (sound + _ROOM * rng.standard_normal(len(sound))).astype(np.float32)


def resample(loop: np.ndarray, rate_hz: int) -> np.ndarray:
    """The same loop of sound at the lower `rate_hz`: its spectrum, cut off below half that rate. float32."""
    count = len(loop) * rate_hz // RATE_HZ
    spectrum = np.fft.rfft(loop)[: count // 2 + 1]
    spectrum[-1] = 0
    return (np.fft.irfft(spectrum, count) * (count / len(loop))).astype(np.float32)


def _voice(rng: np.random.Generator) -> np.ndarray:
    count = RATE_HZ * SECONDS
    gates, hiss_gate = np.zeros((len(_VOWEL_FORMANTS_HZ), count)), np.zeros(count)
    contour = [(0.0, 120.0)]  # (time in s, pitch in Hz)
    now = 0.3
    while now < SECONDS - 2.2:  # the longest phrase still ends before the loop does
        syllables, top_hz = int(rng.integers(4, 8)), rng.uniform(125, 150)
        for k in range(syllables):
            length, vowel = rng.uniform(0.14, 0.24), int(rng.integers(len(_VOWEL_FORMANTS_HZ)))
            _add(gates[vowel], now, rng.uniform(0.6, 1) * _fade(length + 0.03, 0.03, 0.05))
            # Pitch falls over a phrase, as it does in a statement.
            contour.append((now + length / 2, top_hz * (1 - 0.25 * k / syllables) * rng.uniform(0.95, 1.05)))
            if rng.random() < 0.5:
                _add(hiss_gate, now - 0.07, rng.uniform(0.3, 1) * _fade(0.09, 0.02, 0.02))
            now += length
        now += rng.uniform(0.35, 0.6)
    source = np.fft.rfft(_glottis(contour) + 0.005 * rng.standard_normal(count))
    freqs = np.fft.rfftfreq(count, 1 / RATE_HZ)
    voiced = np.zeros(count)
    for gate, formants in zip(gates, _VOWEL_FORMANTS_HZ, strict=True):
        voiced += gate * np.fft.irfft(source * _resonators(freqs, formants), count)
    band = np.exp(-(((freqs - 4800) / 1500) ** 2))
    hiss = np.fft.irfft(np.fft.rfft(rng.standard_normal(count)) * band, count)
    voice: np.ndarray = _VOICE * _peak_one(voiced) + _HISS * hiss_gate * _peak_one(hiss)
    return voice


def _glottis(contour: list[tuple[float, float]]) -> np.ndarray:
    """The derivative of the flow through the glottis: open for six tenths of a period, opening slowly, closing fast."""
    time = np.arange(RATE_HZ * SECONDS) / RATE_HZ
    at_s, hz = np.array(contour).T
    vibrato = 1 + 0.01 * np.sin(2 * np.pi * 5 * time)
    pitch_hz = np.interp(time, at_s, hz) * vibrato
    phase = (np.cumsum(pitch_hz) / RATE_HZ % 1) / 0.6
    flow = np.where(phase < 1, phase**2 * (1 - phase), 0)
    return 54 * np.diff(flow, prepend=flow[-1])


def _resonators(freqs: np.ndarray, formants: tuple[float, ...]) -> np.ndarray:
    """Response of two-pole resonators in series, gain 1 at 0 Hz. complex [len(freqs)]."""
    delay = np.exp(-2j * np.pi * freqs / RATE_HZ)
    response = np.ones(len(freqs), complex)
    for centre, width in zip(formants, _FORMANT_WIDTHS_HZ, strict=True):
        radius = np.exp(-np.pi * width / RATE_HZ)
        a1, a2 = -2 * radius * np.cos(2 * np.pi * centre / RATE_HZ), radius**2
        response *= (1 + a1 + a2) / (1 + a1 * delay + a2 * delay**2)
    return response


def _melody(rng: np.random.Generator) -> np.ndarray:
    """Notes of a quarter or half a second from the C major scale, five harmonics each."""
    melody = np.zeros(RATE_HZ * SECONDS)
    now = 0.1
    while now < SECONDS - 0.6:
        length, pitch_hz = rng.choice([0.25, 0.5]), 440 * 2 ** ((rng.choice(_SCALE_MIDI) - 69) / 12)
        fade = _fade(length, 0.01, 0.1)
        angle = 2 * np.pi * pitch_hz / RATE_HZ * np.arange(len(fade))
        _add(melody, now, fade * sum(np.sin(h * angle) / h**1.2 for h in range(1, 6)))
        now += length
    return melody


def _fade(length_s: float, rise_s: float, fall_s: float) -> np.ndarray:
    """One, but for raised-cosine slopes at both ends."""
    count, rise, fall = (int(s * RATE_HZ) for s in (length_s, rise_s, fall_s))
    shape = np.ones(count)
    shape[:rise] = 0.5 - 0.5 * np.cos(np.pi * np.arange(rise) / rise)
    shape[-fall:] = 0.5 + 0.5 * np.cos(np.pi * np.arange(fall) / fall)
    return shape


def _add(track: np.ndarray, start_s: float, shape: np.ndarray) -> None:
    start = int(start_s * RATE_HZ)
    track[start : start + len(shape)] += shape


def _peak_one(track: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = track / np.abs(track).max()
    return scaled
