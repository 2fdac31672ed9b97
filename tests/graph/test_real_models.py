"""Real models, cut in 2, 3 and 5 and by default: verified bit by bit, or refused by the unit that forbids it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeengine.errors import UserError
from edgeengine.graph import build_bundle, inspect_model
from edgeengine.graph.samples import draw
from tests.graph.onnxes import assert_same_bits, run_chain, run_source
from tests.models import MODELS, model_file

# What each model needs to be fed sensibly, and the most parts where that is below five.
SHAPES = {
    "silero": {"input": (1, 576), "state": (2, 1, 128)},
    "silero-op15": {"input": (1, 576)},
    "ocr-direction": {"x": (1, 3, 48, 192)},
    "ocr-detection": {"x": (1, 3, 64, 96)},
}
VALUES = {"silero": {"sr": np.array(16000)}, "silero-op15": {"sr": np.array(16000)}}
MOST = {"silero": 4}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("short", MODELS)
def test_cut(short: str, parts: int, tmp_path: Path) -> None:
    path = model_file(short)
    options = {"shapes": SHAPES.get(short), "inputs": VALUES.get(short)}
    if parts > MOST.get(short, parts):
        with pytest.raises(UserError, match=r"the most is 4: unit If 'If_0' \(684 nodes in its bodies\) cannot be cut"):
            build_bundle(path, tmp_path / "m.edge", parts=parts, **options)  # type: ignore[arg-type]
        return
    bundle = build_bundle(path, tmp_path / "m.edge", parts=parts, **options)  # type: ignore[arg-type]
    manifest = bundle.manifest
    assert manifest.segments == parts and len(manifest.subgraphs) == parts * (parts + 1) // 2
    assert manifest.exactness.bit_equal_unoptimized
    assert manifest.whole.macs is not None and manifest.whole.unknown_ops == ()
    feeds = draw(manifest.inputs, manifest.shapes, VALUES.get(short, {}), run=11)
    feeds = {i.name: feeds[i.name].astype(i.dtype) for i in manifest.inputs}
    assert_same_bits(run_chain(bundle, feeds), run_source(path, feeds))


@pytest.mark.parametrize("short", ["silero", "magika"])
def test_without_options(short: str, tmp_path: Path) -> None:
    told: list[str] = []
    bundle = build_bundle(model_file(short), tmp_path / "m.edge", progress=lambda text, share: told.append(text))
    assert bundle.manifest.exactness.bit_equal_unoptimized
    assert any(t.startswith("assumed ") for t in told)
    if short == "silero":
        assert any("--input sr=VALUE" in t for t in told)


@pytest.mark.usefixtures("in_process")
def test_inspect_silero() -> None:
    found = inspect_model(model_file("silero"), SHAPES["silero"], VALUES["silero"])
    assert found["control_flow"] == ["If 'If_0'"] and found["nodes_in_bodies"] == 684 and found["most_parts"] == 4
    assert found["unsupported"] == ["If 'If_0' (684 nodes in its bodies) cannot be cut inside"]
