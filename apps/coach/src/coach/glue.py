"""What lies between two models of one chain; numpy only. A workload says `glue = "coach.glue:NAME"`."""

from __future__ import annotations

import numpy as np

MEL_BANDS = 32


def mel_frames(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """From the mel model's output to frames for the embedding model's window.

    Args:
        tensors: {"input_1": float32 [..., T, 32]} in dB, the leading axes of size 1.

    Returns:
        {"input_1": float32 [T, 32]}, oldest frame first, x / 10 + 2: the range the embedding model was trained on.
    """
    frames = tensors["input_1"].reshape(-1, MEL_BANDS)
    return {"input_1": frames / np.float32(10) + np.float32(2)}
