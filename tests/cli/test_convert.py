"""`edgeengine convert`: what it prints, its exit codes, and that nothing is half-written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conversion.conftest import in_this_process  # noqa: F401  a fixture
from tests.conversion.test_convert import saved, squeezing
from tests.conversion.test_quantize import X, linear


@pytest.fixture
def files(tmp_path: Path) -> Path:
    saved(tmp_path, squeezing(), "old.onnx")
    saved(tmp_path, linear(np.linspace(-1, 1, 64 * 8).reshape(64, 8)), "m.onnx")
    np.savez(tmp_path / "x.npz", x=X)
    np.savez(tmp_path / "y.npz", y=X)
    (tmp_path / "net.pt").write_bytes(b"PK\x03\x04")
    (tmp_path / "text.onnx").write_text("no model")
    (tmp_path / "folder.onnx").mkdir()
    return tmp_path


def test_table_says_what_was_made(cli: Any, files: Path) -> None:
    done = cli("convert", "old.onnx", "-o", "new.onnx")
    assert done.code == 0, done.err
    for word in ("new.onnx", "opset 18", "batchx1x4", "against the source"):
        assert word in done.out


def test_json_is_one_document(cli: Any, files: Path) -> None:
    done = cli("convert", "m.onnx", "-o", "q.onnx", "--quantize", "int8-qdq", "--calibrate", "x.npz", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["quantized"]["kind"] == "int8-qdq" and document["free_batch"]
    assert [c["batch"] for c in document["checks"]] == [1, 3, 8]
    assert document["bytes"] == (files / "q.onnx").stat().st_size
    assert "calibrated with" in done.err


def test_quantized_summary_has_size_drop_and_error(cli: Any, files: Path) -> None:
    done = cli("convert", "m.onnx", "-o", "q.onnx", "--quantize", "int8-qdq", "--calibrate", "x.npz", "--evaluate", "x.npz")
    assert done.code == 0, done.err
    for word in ("drop 0.", "allowed 1", "RMS", "float against source"):
        assert word in done.out


BAD = {
    "pickle": (["net.pt", "-o", "n.onnx"], "torch.export.save"),
    "missing file": (["none.onnx", "-o", "n.onnx"], "none.onnx"),
    "no model": (["text.onnx", "-o", "n.onnx"], "text.onnx"),
    "no source": (["what", "-o", "n.onnx"], "module:callable"),
    "output that is no .onnx": (["m.onnx", "-o", "n.edge"], ".onnx"),
    "output that is a folder": (["m.onnx", "-o", "folder.onnx"], "folder"),
    "output in no folder": (["m.onnx", "-o", "none/n.onnx"], "does not exist"),
    "opset out of range": (["m.onnx", "-o", "n.onnx", "--opset", "99"], "--opset 99"),
    "opset that cannot be": (["m.onnx", "-o", "n.onnx", "--opset", "7"], "--opset 7"),
    "unknown kind": (["m.onnx", "-o", "n.onnx", "--quantize", "int4"], "int4"),
    "no samples": (["m.onnx", "-o", "n.onnx", "--quantize", "int8-qdq"], "--calibrate"),
    "samples for nothing": (["m.onnx", "-o", "n.onnx", "--calibrate", "x.npz"], "--quantize"),
    "samples of another model": (["m.onnx", "-o", "n.onnx", "--quantize", "int8-qdq", "--calibrate", "y.npz"], "'x'"),
    "samples that are missing": (["m.onnx", "-o", "n.onnx", "--quantize", "int8-qdq", "--calibrate", "z.npz"], "z.npz"),
    "negative drop": (["m.onnx", "-o", "n.onnx", "--quantize", "fp16", "--max-drop", "-1"], "--max-drop"),
    "drop that is no number": (["m.onnx", "-o", "n.onnx", "--quantize", "fp16", "--max-drop", "nan"], "--max-drop"),
    "drop past the limit": (
        ["m.onnx", "-o", "n.onnx", "--quantize", "int8-qdq", "--calibrate", "x.npz", "--max-drop", "0.001"], "--max-drop"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_writes_nothing(case: str, cli: Any, files: Path) -> None:
    arguments, word = BAD[case]
    before = sorted(files.rglob("*"))
    done = cli("convert", *arguments)
    assert done.code == 2, done.err
    assert done.out == "" and done.err.count("\n") == 1 and done.err.startswith("edgeengine: "), done.err
    assert word in done.err
    assert sorted(files.rglob("*")) == before
