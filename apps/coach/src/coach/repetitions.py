"""Counting repetitions from the angular rate.

A repetition turns the wrist one way and back, so the turning about the exercise's own axis swings once through both signs. That
axis is the first principal component of the last `memory_s` of angular rate, its sign kept from one look to the next. The rate
about it, smoothed over 0.2 s, passes a Schmitt trigger: a repetition is a rise above +h that follows a fall below -h, h being
half the standard deviation over the memory. What swings faster than `shortest_s`, or hardly turns at all, is no repetition.

The recordings state no counts, so the method is tested on synthetic movement only: take the number as an estimate.
"""

from __future__ import annotations

import numpy as np

_SMOOTH_S = 0.2
_LEAST_RATE = 0.15  # rad/s, standard deviation: below it the wrist rests


class RepetitionCounter:
    """Push samples as they come; `count` is the number so far.

    Args:
        rate_hz: of the samples.
        memory_s: what the axis and the threshold are taken from.
        shortest_s: no repetition takes less.
    """

    def __init__(self, rate_hz: float, memory_s: float = 6.0, shortest_s: float = 0.8):
        self._rate_hz, self._shortest = rate_hz, shortest_s * rate_hz
        self._memory = np.zeros((0, 3))
        self._kept = round(memory_s * rate_hz)
        self._kernel = np.full(max(round(_SMOOTH_S * rate_hz), 1), 1.0)
        self._kernel /= len(self._kernel)
        self._axis: np.ndarray | None = None
        self._below, self._since = False, self._shortest
        self.count = 0

    def push(self, angular_rate: np.ndarray) -> int:
        """Samples [n, 3] in rad/s that follow those before; returns the repetitions that ended among them."""
        self._memory = np.concatenate([self._memory, angular_rate])[-self._kept :]
        about_axis, level = self._about_axis(len(angular_rate))
        before = self.count
        for value in about_axis:
            self._since += 1
            if value < -level:
                self._below = True
            elif value > level and self._below:
                self._below = False
                if self._since >= self._shortest:
                    self.count += 1
                    self._since = 0
        return self.count - before

    def interrupted(self) -> None:
        """Samples were lost: what was begun does not count."""
        self._memory, self._axis, self._below = np.zeros((0, 3)), None, False

    def _about_axis(self, newest: int) -> tuple[np.ndarray, float]:
        """The smoothed rate about the axis for the newest samples, and the threshold; nothing where the wrist rests."""
        memory = self._memory - self._memory.mean(0)
        axis: np.ndarray = np.linalg.svd(memory, full_matrices=False)[2][0]
        if self._axis is not None and axis @ self._axis < 0:
            axis = -axis
        self._axis = axis
        smooth = np.convolve(memory @ axis, self._kernel)[: len(memory)]
        spread = float(smooth.std())
        return (smooth[-newest:], spread / 2) if spread > _LEAST_RATE else (np.zeros(0), 0.0)
