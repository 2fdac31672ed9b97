"""`edgeengine app new`: a working app to start from, with a model, a workload, and a test that passes."""

from __future__ import annotations

import keyword
import shutil
import sys
import tempfile
from enum import StrEnum
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from edgeengine.errors import UserError

EXAMPLES = ("edgeengine app new doorbell", "cd doorbell && python -m pytest")

# Where each template goes; $name is the app's.
_FILES = {
    "pyproject.toml.in": "pyproject.toml",
    "init.py.in": "src/$name/__init__.py",
    "main.py.in": "src/$name/__main__.py",
    "workload.toml.in": "src/$name/workload.toml",
    "app_test.py.in": "tests/test_$name.py",
}


class Action(StrEnum):
    new = "new"


def command(
    action: Annotated[Action, typer.Argument(help="What to do.")],
    name: Annotated[str, typer.Argument(help="Of the app: its folder and its Python package.")],
) -> None:
    """Start an app: a folder with a package that embeds the engine, a workload, a small model to replace, and a test."""
    letters = name.isascii() and name[:1].isalpha() and name == name.lower()
    if not letters or not name.isidentifier() or keyword.iskeyword(name):
        raise UserError(f"app new: {name!r} cannot name a package; give lower-case letters, digits and _, a letter first")
    folder = Path(name)
    if folder.exists() or folder.is_symlink():
        raise UserError(f"app new: {name} is there already; give another name or remove it")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise UserError(f"app new: there is a Python module {name} already, which the app would hide; give another name")
    # Written aside: there is a whole app or none.
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as aside:
        app = Path(aside) / name
        for source, target in _FILES.items():
            file = app / Template(target).substitute(name=name)
            file.parent.mkdir(parents=True, exist_ok=True)
            text = (files("edgeengine.cli") / "skeleton" / source).read_text(encoding="utf-8")
            file.write_text(Template(text).substitute(name=name), encoding="utf-8")
        _write_model(app / "src" / name)
        shutil.move(app, folder)
    typer.echo(f"{name}: run its test with 'cd {name} && python -m pytest', and the app with 'PYTHONPATH=src python -m {name}'")


def _write_model(folder: Path) -> None:
    """The mean of each of 3 channels over a window of 64, as model.onnx and as the bundle model.edge."""
    from onnx import TensorProto, checker, helper, save

    from edgeengine.graph import build_bundle

    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["window", "time"], ["mean"], keepdims=0)],
        "mean",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, [1, 3, 64])],
        [helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor("time", TensorProto.INT64, [1], [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    checker.check_model(model)
    save(model, folder / "model.onnx")
    build_bundle(folder / "model.onnx", folder / "model.edge")
