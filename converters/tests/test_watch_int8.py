"""The committed exercise model as int8: calibrated on people it was trained on, measured on the one it was not."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is needed to convert")

from edgeengine.conversion import Request, convert

from edgeengine_converters import ConversionError
from edgeengine_converters.watch import data, source

MODEL = Path(__file__).parents[2] / "apps/coach/src/coach/models/exercise.onnx"
SUBJECT = 4
"""Whom the committed model has never seen: see its manifest."""


def test_int8_loses_at_most_one_point_of_accuracy(tmp_path: Path) -> None:
    try:
        recordings = source.read()
    except ConversionError as error:
        pytest.skip(f"the recordings are not installed: {error}")
    if not MODEL.is_file():
        pytest.skip("the coach application is not beside this distribution")
    seen = data.train_windows(data.training_recordings(recordings.items, SUBJECT), data.WINDOW, 200)
    chosen = np.random.default_rng(0).permutation(len(seen))[:128]
    tested = data.test_windows(data.tested_recordings(recordings.items, SUBJECT))
    request = Request(
        quantize="int8-qdq",
        calibration={"window": seen.values[chosen]},
        evaluation={"window": tested.values, "label": tested.labels},
    )
    found = convert(str(MODEL), str(tmp_path / "int8.onnx"), request).quantized
    assert (
        found is not None
        and found.accuracy.float_accuracy is not None
        and found.accuracy.accuracy is not None
    )
    assert found.accuracy.criterion == "accuracy" and not found.kept_float
    assert found.accuracy.float_accuracy > 85 and found.accuracy.accuracy >= found.accuracy.float_accuracy - 1
