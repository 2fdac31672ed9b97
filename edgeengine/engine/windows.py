"""Frame windows: the newest frames of a stream whose jobs each bring a few."""

from __future__ import annotations

from bisect import bisect_right, insort

import numpy as np

from edgeengine.errors import UserError
from edgeengine.spec import TensorSpec
from edgeengine.workload import Window

SLACK_JOBS = 8  # kept beyond what the oldest waiting job needs, for older parent jobs that still run


class FrameWindow:
    """The frames of one fed input, kept by the index of the parent job that brought them.

    A parent job that was dropped or failed, or that still runs when a later child starts, leaves a gap: frames of older jobs
    take the place of its own. Without a lock: whoever owns the window has one.
    """

    def __init__(self, window: Window, spec: TensorSpec, task: str):
        """Raises UserError when the input does not hold `frames` along its first axis longer than one."""
        self._window = window
        dims = _long_axes(spec.dims)
        if window.frames > 1 and dims[:1] != (window.frames,):
            raise UserError(f"task {task!r}, window: input {spec.name!r} has shape {spec.shape}, not {window.frames} frames")
        self._rest = dims[1:] if window.frames > 1 else dims  # the shape of one frame
        self._frames: dict[int, np.ndarray] = {}
        self._order: list[int] = []
        self._jobs = -(-window.frames // window.hop)

    def push(self, index: int, array: np.ndarray) -> None:
        """Add the frames of parent job `index`: the last `hop` of `array`.

        Raises UserError for fewer, or frames of another shape.
        """
        dims, rest = _long_axes(array.shape), self._rest
        if dims[len(dims) - len(rest) :] != rest:
            raise UserError(f"window: the parent gave shape {array.shape}, a frame has shape {rest}; convert it with glue")
        frames = array.reshape(-1, *rest)
        hop = self._window.hop
        if len(frames) < hop:
            raise UserError(f"window: the parent gave {len(frames)} frames, hop says {hop}")
        if index not in self._frames:
            insort(self._order, index)
        # Copied when only a part is kept: a view would hold the parent's whole array.
        self._frames[index] = frames if len(frames) == hop else frames[-hop:].copy()

    def newest(self, index: int) -> np.ndarray:
        """The newest `frames` up to job `index`, shape [frames, …]. Raises UserError when there are too few."""
        frames = self._window.frames
        end = bisect_right(self._order, index)
        parts = [self._frames[i] for i in self._order[max(end - self._jobs, 0) : end]]
        found = len(parts) * self._window.hop
        if found < frames:
            raise UserError(f"window: {found} of {frames} frames so far; the parent has not run often enough")
        return np.concatenate(parts)[-frames:]

    def trim(self, oldest: int) -> None:
        """Let go of frames that neither job `oldest` nor a later one needs."""
        excess = bisect_right(self._order, oldest) - 2 * self._jobs - SLACK_JOBS
        if excess > 0:
            for i in self._order[:excess]:
                del self._frames[i]
            del self._order[:excess]


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for d in shape if d != 1)
