"""Which converter a source goes to, and what is said where there is none."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from edgeengine.conversion import find_converter, load_converters
from edgeengine.conversion.onnx_source import OnnxConverter
from edgeengine.errors import UserError
from edgeengine.testing import check_converter
from tests.conversion.test_convert import saved, squeezing


def installed(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    points = [EntryPoint(name, value, "edgeengine.converters") for name, value in values.items()]
    monkeypatch.setattr("edgeengine.conversion.registry.entry_points", lambda group: points)


def test_onnx_keeps_the_contract(tmp_path: Path) -> None:
    check_converter(OnnxConverter(), saved(tmp_path, squeezing()), tmp_path)


@pytest.mark.parametrize("source", ["package.module:make", "exported.pt2"])
def test_without_the_converters_torch_sources_are_told_what_to_install(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(UserError, match="edgeengine-converters"):
        find_converter(source)
    assert find_converter("m.onnx").name == "onnx"


@pytest.mark.parametrize("source", ["net.pt", "net.pth", "net.ckpt", "a/b.pkl", "NET.PT"])
def test_pickles_are_never_opened(source: str) -> None:
    with pytest.raises(UserError, match=r"pickle.*torch.export.save"):
        find_converter(source)


@pytest.mark.parametrize(("source", "said"), [("m.h5", "Keras"), ("m.tflite", "TensorFlow Lite"), ("model", "not a source")])
def test_other_sources_say_what_to_do(source: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(UserError, match=said):
        find_converter(source)


def test_names_and_imports_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, onnx="edgeengine.conversion.onnx_source:OnnxConverter")
    with pytest.raises(UserError, match="more than one package"):
        load_converters()
    for broken in ("no_such_package:Converter", "math:no_such_name", "math:pi", "math:sqrt"):
        installed(monkeypatch, other=broken)
        with pytest.raises(UserError, match="converter 'other' cannot be made"):
            load_converters()
    assert find_converter("m.onnx").name == "onnx", "a broken package does not stand in the way"
