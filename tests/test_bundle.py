"""Opening a bundle: everything in it is checked against the manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeengine.bundle import Bundle, open_bundle
from edgeengine.errors import UserError


@pytest.fixture
def copy(bundles: dict[str, Bundle], tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundles["scale"].path, tmp_path / "m.edge"))


def edited(root: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    manifest = json.loads((root / "manifest.json").read_bytes())
    edit(manifest)
    (root / "manifest.json").write_text(json.dumps(manifest))


def test_bundle_is_the_same_wherever_it_lies(bundles: dict[str, Bundle], copy: Path) -> None:
    opened = open_bundle(copy)
    assert (opened.hash, opened.manifest) == (bundles["scale"].hash, bundles["scale"].manifest)
    assert opened.hash == hashlib.sha256((copy / "manifest.json").read_bytes()).hexdigest()
    whole = opened.manifest.whole
    assert (whole.start, whole.stop) == (0, opened.manifest.segments)
    assert opened.file(whole).is_file()
    assert opened.manifest.subgraph(whole.name) == whole


def _first_file(root: Path) -> Path:
    return sorted(root.glob("*.onnx"))[0]


def _link(root: Path) -> None:
    file = _first_file(root)
    shutil.move(file, root.parent / "elsewhere.onnx")
    file.symlink_to(root.parent / "elsewhere.onnx")


def _outside(name: str) -> Callable[[Path], None]:
    def harm(root: Path) -> None:
        (root.parent / "secret").write_bytes(b"s")
        edited(root, lambda m: m["files"].update({name.format(root=root.parent): hashlib.sha256(b"s").hexdigest()}))

    return harm


HARM: dict[str, tuple[Callable[[Path], Any], str]] = {
    "gone": (shutil.rmtree, "no such bundle"),
    "no manifest": (lambda root: (root / "manifest.json").unlink(), "not a bundle"),
    "broken manifest": (lambda root: (root / "manifest.json").write_text("{"), "not a valid manifest"),
    "other manifest": (lambda root: (root / "manifest.json").write_text("{}"), "not a valid manifest"),
    "newer schema": (lambda root: edited(root, lambda m: m.update(schema=99)), "schema 99"),
    "newer schema with other fields": (lambda root: (root / "manifest.json").write_text('{"schema": 99}'), "schema 99"),
    "changed subgraph": (lambda root: _first_file(root).write_bytes(b"x"), "changed since"),
    "changed weights": (lambda root: (root / "weights/base.bin").write_bytes(b"x"), "changed since"),
    "missing subgraph": (lambda root: _first_file(root).unlink(), "missing from the bundle"),
    "link": (_link, "is a link"),
    "path upwards": (_outside("../secret"), "leaves the bundle"),
    "absolute path": (_outside("{root}/secret"), "leaves the bundle"),
    "subgraph without hash": (lambda root: edited(root, lambda m: m["files"].pop(m["subgraphs"][0]["file"])), "no hash"),
}


def test_unknown_subgraph_is_named(bundles: dict[str, Bundle]) -> None:
    with pytest.raises(UserError, match=r"no subgraph 's9_10'; known: .*s0_1"):
        bundles["scale"].manifest.subgraph("s9_10")


@pytest.mark.parametrize("harm", HARM)
def test_harmed_bundle_is_refused_in_one_line(copy: Path, harm: str) -> None:
    do, what = HARM[harm]
    do(copy)
    with pytest.raises(UserError, match=what) as e:
        open_bundle(copy)
    assert "\n" not in str(e.value)
    assert str(copy) in str(e.value)
