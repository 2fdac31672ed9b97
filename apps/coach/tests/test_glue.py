"""From the mel model's output to the embedding model's frames."""

from __future__ import annotations

import numpy as np

from coach.glue import mel_frames


def test_frames_first_and_scaled() -> None:
    db = np.arange(8 * 32, dtype=np.float32).reshape(1, 1, 8, 32)
    frames = mel_frames({"input_1": db})["input_1"]
    assert frames.shape == (8, 32) and frames.dtype == np.float32
    np.testing.assert_array_equal(frames[:, 0], np.arange(8, dtype=np.float32) * 32 / np.float32(10) + 2)
    assert db[0, 0, 0, 1] == 1  # the parent's output is left as it was
