"""A stream of samples: time stamps out of bursts, windows at a steady rate, and no window out of old data."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.io.stream import SampleStream, StaleData

SECOND = 1_000_000_000


def sine(t: float) -> list[float]:
    return [np.sin(2 * np.pi * t), np.cos(2 * np.pi * t)]


def filled(rate_hz: float, seconds: float, arrive: object = lambda t: t, lost: frozenset[int] = frozenset()) -> SampleStream:
    stream = SampleStream(2, rate_hz)
    for i in range(round(seconds * rate_hz)):
        if i not in lost:
            stream.append(sine(i / rate_hz), round(arrive(i / rate_hz) * SECOND))  # type: ignore[operator]
    return stream


def ends_at(stream: SampleStream) -> int:
    assert stream.newest_ns is not None
    return stream.newest_ns


def test_a_window_is_the_newest_samples_as_they_are() -> None:
    stream = filled(50, 10)
    window = stream.window(128, 50, ends_at(stream))
    assert window.shape == (128, 2) and window.dtype == np.float32
    np.testing.assert_allclose(window, [sine((372 + i) / 50) for i in range(128)], atol=1e-5)


@given(st.floats(20, 120), st.floats(20, 120))
def test_another_rate_is_interpolated(sensor_hz: float, model_hz: float) -> None:
    stream = filled(sensor_hz, 6)
    end = (round(6 * sensor_hz) - 1) / sensor_hz
    window = stream.window(40, model_hz, ends_at(stream))
    # Linear interpolation of a 1 Hz sine is off by up to (2 pi)^2 / 8 f^2.
    np.testing.assert_allclose(
        window, [sine(end - (39 - i) / model_hz) for i in range(40)], atol=1.1 * 39.5 / 8 / sensor_hz**2 + 1e-4
    )


def test_bursts_and_lost_samples_bend_no_time() -> None:
    """Arrivals bunch up to 60 ms late, and one sample in fifty is lost: the wave is still the wave."""
    rng = random.Random(4)
    lost = frozenset(i for i in range(1000) if rng.random() < 0.02)
    stream = filled(50, 20, lambda t: np.ceil(t / 0.06) * 0.06 + rng.uniform(0, 0.004), lost - {998, 999})
    window = stream.window(128, 50, ends_at(stream))
    phase = min((float(np.abs(window - [sine(s / 1000 + i / 50) for i in range(128)]).max()), s) for s in range(0, 1000, 2))
    assert phase[0] < 0.12


def test_old_data_makes_no_window() -> None:
    empty = SampleStream(2, 50)
    with pytest.raises(StaleData, match="no sample"):
        empty.window(8, 50, 0)
    young = filled(50, 1)
    with pytest.raises(StaleData, match="samples so far"):
        young.window(128, 50, ends_at(young))
    old = filled(50, 5)
    with pytest.raises(StaleData, match=r"0\.40 s old"):
        old.window(128, 50, ends_at(old) + 400_000_000)
    holed = filled(50, 5, lost=frozenset(range(200, 230)))
    with pytest.raises(StaleData, match=r"a hole of 0\.6"):
        holed.window(128, 50, ends_at(holed))
    assert holed.window(15, 50, ends_at(holed)).shape == (15, 2)  # the hole is behind it


def test_what_has_not_come_yet_is_not_looked_at() -> None:
    stream = filled(50, 10)
    window = stream.window(50, 50, 4 * SECOND)
    np.testing.assert_allclose(window[-1], sine(4.0), atol=1e-5)


@given(st.lists(st.integers(0, 100_000_000), min_size=2, max_size=300))
def test_times_never_run_back(steps: list[int]) -> None:
    stream, at = SampleStream(1, 100, kept_s=1.0), 0
    last = -1
    for step in steps:
        at += step
        stream.append([0.0], at)
        assert stream.newest_ns is not None and last <= stream.newest_ns <= max(at, last + 20_000_000)
        last = stream.newest_ns
    assert stream.count == len(steps)


@pytest.mark.parametrize(
    "options", [{"channels": 0, "rate_hz": 50}, {"channels": 1, "rate_hz": 0}, {"channels": 1, "rate_hz": 5, "gap_s": 90}]
)
def test_streams_that_cannot_be(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match="cannot be"):
        SampleStream(**options)  # type: ignore[arg-type]
