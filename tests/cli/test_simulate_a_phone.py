"""docs/how-to/simulate-a-phone.md does what it says: its files are written, its commands run, in order, in one folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.graph.onnxes import model, node, weight, x_in

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "simulate-a-phone.md"


def test_the_guide_runs(cli: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w0"], ["b"], pads=[1, 1, 1, 1]),
        node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "w2"], ["y"]),
    ]
    weights = [weight("w0", rng.standard_normal((64, 3, 3, 3))), weight("w1", rng.standard_normal((64, 64, 3, 3)))]
    weights.append(weight("w2", rng.standard_normal((64, 4))))
    onnx.save(model(nodes, [x_in(1, 3, 96, 96)], ["y"], weights), tmp_path / "model.onnx")
    text = GUIDE.read_text()
    for name, body in re.findall(r"`([\w.]+)`:\n\n```\w+\n(.*?)```", text, flags=re.S):
        (tmp_path / name).write_text(body)
    assert {"workload.toml", "anchors.csv"} <= {f.name for f in tmp_path.iterdir()}
    blocks = re.findall(r"```(\w*)\n(.*?)```", text, flags=re.S)
    commands = [line for language, body in blocks if not language for line in body.splitlines()]
    assert len(commands) >= 8
    for line in commands:
        words = shlex.split(line)
        assert words[0] == "edgeengine"
        done = cli(*words[1:])
        assert done.code == 0, (line, done.err)
