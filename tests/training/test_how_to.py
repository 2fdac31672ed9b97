"""The guides to training do what they say: their commands and programs run, in order, in one folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tests.graph.onnxes import model, node, weight, x_in

GUIDES = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(guide: str, language: str) -> list[str]:
    every = re.findall(r"^```(\w*)\n(.*?)^```$", (GUIDES / guide).read_text(), flags=re.S | re.M)
    return [text for kind, text in every if kind == language]


@pytest.mark.parametrize("guide", ["finetune.md", "learn.md"])
def test_the_guide_runs(guide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx

    from edgeengine.cli.main import app

    rng = np.random.default_rng(3)
    nodes = [node("MatMul", ["x", "w1"], ["h"]), node("Relu", ["h"], ["r"]), node("Gemm", ["r", "w2", "b2"], ["y"])]
    weights = [weight("w1", rng.standard_normal((4, 8)) / 2), weight("w2", rng.standard_normal((8, 2)) / 3), weight("b2", [0, 0])]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    onnx.save(model(nodes, [x_in("N", 4)], ["y"], weights), "model.onnx")
    x = rng.standard_normal((200, 4)).astype(np.float32)
    np.savez("examples.npz", x=x, label=(x[:, 0] > x[:, 1]).astype(np.int64))
    for line in "".join(blocks(guide, "")).splitlines():
        words = shlex.split(line)
        assert words[0] == "edgeengine"
        app(words[1:], standalone_mode=False)
    names: dict[str, object] = {"x": x, "label": (x[:, 0] > x[:, 1]).astype(np.int64)}
    for workload in blocks(guide, "toml"):
        Path("learning.toml").write_text(workload)
    for program in blocks(guide, "python"):
        exec(program, names)
