"""Small ONNX models for the graph tests, and a way to build bundles without a child process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgeengine.graph import child


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs here instead of in a child process: the same code, without the start-up time."""

    def run_here(job: Any, values: Mapping[str, np.ndarray], result: type, what: str) -> Any:
        return child.execute(job, values)

    monkeypatch.setattr("edgeengine.graph.shapes.run_in_child", run_here)
    monkeypatch.setattr("edgeengine.graph.build.run_in_child", run_here)
    monkeypatch.setattr("edgeengine.graph.fix.run_in_child", run_here)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Saves a model under tmp_path and returns the file."""

    def save(model: onnx.ModelProto, name: str = "model.onnx") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model.SerializeToString())
        return path

    return save
