"""Every GPU that this machine has, whichever provider reaches it; skipped, with what each says, where there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices import discover
from edgeengine.devices.providers import load_providers
from edgeengine.spec import Processor
from tests.emulator import CPU, convnet, image, whole


@pytest.fixture
def gpus() -> list[Processor]:
    found = [p for p in discover() if p.kind == "gpu"]
    usable = [p for p in found if p.usable]
    if not usable:
        reasons = "; ".join(f"{p.name}: {p.reason}" for p in found) or "no package with a provider for one is installed"
        pytest.skip(f"no usable GPU ({reasons})")
    return usable


def test_outputs_are_those_of_the_cpu(gpus: list[Processor], tmp_path: Path) -> None:
    from edgeengine.graph import build_bundle

    model = convnet(tmp_path / "m.onnx")
    bundle: Bundle = build_bundle(model, tmp_path / "m.edge", parts=1)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = ort.InferenceSession(str(model), options, providers=[CPU]).run(None, {"x": image(1)})[0]
    providers = load_providers()
    for gpu in gpus:
        executable = providers[gpu.provider].load(bundle, whole(bundle, gpu.name), gpu)
        assert executable.placement is not None and executable.placement.nodes.get(gpu.provider), gpu.name
        assert np.abs(executable.run({"x": image(1)})["y"] - expected).max() <= 1e-3 * np.ptp(expected), gpu.name
