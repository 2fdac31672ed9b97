"""What splitting keeps resident: a model of 100 MB in one file, and 2.1 GB of weights beside the model (a sparse file)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import Row
from tests.graph.test_memory import peaks, stack

MB_INSIDE = (250, 350)  # the splitting process, the verifying child
MB_BESIDE = (300, 1200)


def run() -> list[Row]:
    """Peaks of VmHWM in MB, each from processes of their own; three parts are cut and verified."""
    with tempfile.TemporaryDirectory() as folder:
        inside, beside = Path(folder, "inside.onnx"), Path(folder, "beside.onnx")
        proto = stack(6, 2048, external=True)
        for tensor in proto.graph.initializer:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = np.zeros((2048, 2048), np.float32).tobytes()
        inside.write_bytes(proto.SerializeToString())
        beside.write_bytes(stack(21, 5120, external=True).SerializeToString())
        with Path(folder, "w.bin").open("wb") as data:
            data.truncate(21 * 5120 * 5120 * 4)
        rows = []
        for label, path, aims in (("100 MB", inside, MB_INSIDE), ("2.1 GB", beside, MB_BESIDE)):
            for who, peak, aim in zip(("splitter", "verifying child"), peaks(path), aims, strict=True):
                rows.append(Row(f"{who}, model of {label}", "MB", [peak], aim))
    return rows
