"""A bundle whose input was made constant runs live, its parts one after the other, with its state carried from job to job."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeengine.engine import Engine
from edgeengine.graph import build_bundle
from edgeengine.workload import parse_workload
from tests.builders import real_plan, toml
from tests.graph.onnxes import session
from tests.models import model_file

WINDOWS = np.random.default_rng(5).standard_normal((4, 1, 576)).astype(np.float32) / 10


def test_a_fixed_model_runs_live_with_carried_state(tmp_path: Path) -> None:
    path, state = model_file("silero"), np.zeros((2, 1, 128), np.float32)
    shapes = {"input": (1, 576), "state": state.shape}
    bundle = build_bundle(path, tmp_path / "vad.edge", parts=3, shapes=shapes, fix={"sr": np.array(16000)})
    task = {"name": "vad", "model": str(bundle.path), "carry": {"stateN": "state"}, "deadline_ms": 60_000}
    tasks = parse_workload(toml(task))
    with Engine(tasks, real_plan(tasks, {"vad": bundle})) as engine:
        got = [engine.submit("vad", {"input": window}).result(20).outputs["output"] for window in WINDOWS]
    whole = session(str(path))
    for window, output in zip(WINDOWS, got, strict=True):
        expected, state = whole.run(["output", "stateN"], {"input": window, "state": state, "sr": np.array(16000)})
        np.testing.assert_allclose(output, expected, atol=1e-4)
