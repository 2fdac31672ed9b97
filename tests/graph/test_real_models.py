"""Real models, cut in 2, 3, 5 and 8, by time and by default: verified bit by bit, or refused by the unit that forbids it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.graph import build_bundle, inspect_model, load_model
from edgeengine.graph.candidates import Writer, finest
from edgeengine.graph.measured import Timer
from edgeengine.graph.samples import draw
from edgeengine.graph.study import study
from edgeengine.spec.bundle import SubgraphSpec
from tests.graph.onnxes import assert_same_bits, run_chain, run_source, session
from tests.models import MODELS, installed_file, model_file

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
@pytest.mark.parametrize("parts", [5])
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


LIGHT = [f"light_{name}" for name in ("squeezenet", "shufflenet", "resnet50", "densenet121", "inception_v1")]


def by_operations(bundle: Bundle, subgraphs: Sequence[SubgraphSpec]) -> list[float]:
    """A clock that repeats itself: a nanosecond per multiply-accumulate, and one for every element made."""
    return [1.0 * (s.macs or 0) + sum(t.nbytes or 0 for t in s.outputs) / 4 for s in subgraphs]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("short", [*MODELS, *LIGHT])
def test_finest_chains_of_other_counts(short: str, tmp_path: Path) -> None:
    """2, 3 and 8 parts (of the light nets 5 as well), and as few as a quarter of the whole's time allows."""
    path = model_file(short) if short in MODELS else installed_file("onnx", f"onnx/backend/test/data/light/{short}.onnx")
    model = load_model(path)
    seen = study(model, SHAPES.get(short), VALUES.get(short))
    writer = Writer(seen, tmp_path)
    feeds = draw(seen.tensors.inputs, seen.tensors.fixed, seen.tensors.values, run=11)
    expected = run_source(path, feeds)
    timer = Timer(model, seen.cuts, writer, by_operations, budget=256)
    whole = by_operations(None, writer.write(seen.cuts.by_count(1), finest(1)).subgraphs)[0]  # type: ignore[arg-type]
    for way in (2, 3, 5, 8, "quarter"):
        if short in MODELS and way == 5:
            continue  # goes through a whole build above
        try:
            segmentation = timer.by_limit(whole / 4) if way == "quarter" else seen.cuts.by_count(int(way))
        except UserError as e:
            assert re.search(r"(unit|the most is) .* cannot be cut", str(e)) and "the most is" in str(e)
            assert short == "silero" or way == "quarter"
            continue
        count = len(segmentation.segments)
        trial = writer.write(segmentation, finest(count))
        assert count == way or max(by_operations(None, trial.subgraphs)) <= whole / 4  # type: ignore[arg-type]
        tensors = dict(feeds)
        for sub in trial.subgraphs:
            names = [o.name for o in sub.outputs]
            results = session(str(tmp_path / sub.file)).run(names, {i.name: tensors[i.name] for i in sub.inputs})
            tensors.update(zip(names, results, strict=True))
        assert_same_bits({n: tensors[n] for n in expected}, expected)


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
