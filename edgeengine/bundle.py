"""Read a bundle: check every file against the manifest, refuse what points outside. Never imports onnx, never unpickles."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec import Versioned
from edgeengine.spec.bundle import SCHEMA, Manifest, SubgraphSpec

MANIFEST = "manifest.json"
WEIGHTS = "weights/base.bin"


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. `hash` (hex sha256 of the manifest) is its identity in profiles, plans and state folders."""

    path: Path
    hash: str
    manifest: Manifest

    def file(self, subgraph: SubgraphSpec) -> Path:
        return self.path / subgraph.file


def sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def open_bundle(path: str | Path, command: str = "build") -> Bundle:
    """Open and verify the bundle at `path`; `command` is the one that messages name to make it with.

    Raises UserError when it is not a bundle, its schema is newer than ours, a file is missing, changed, or lies outside.
    """
    root = Path(path)
    if not root.is_dir():
        raise UserError(f"{root}: no such bundle; make one with 'edgeengine {command} MODEL.onnx -o {root}'")
    try:
        raw = (root / MANIFEST).read_bytes()
        schema = msgspec.json.decode(raw, type=Versioned).schema
        if schema != SCHEMA:
            raise UserError(f"{root}: bundle schema {schema}, this edgeengine reads {SCHEMA}; rebuild the bundle")
        manifest = msgspec.json.decode(raw, type=Manifest)
    except FileNotFoundError as e:
        raise UserError(f"{root}: no {MANIFEST} in it, so it is not a bundle; rebuild it with 'edgeengine {command}'") from e
    except msgspec.DecodeError as e:
        raise UserError(f"{root / MANIFEST}: not a valid manifest ({e}); rebuild the bundle") from e
    for name, expected in manifest.files.items():
        _check_file(root, name, expected)
    listed = {s.file for s in manifest.subgraphs}
    if not listed <= manifest.files.keys():
        raise UserError(f"{root / MANIFEST}: subgraph file {sorted(listed - manifest.files.keys())[0]!r} has no hash; rebuild")
    return Bundle(path=root, hash=hashlib.sha256(raw).hexdigest(), manifest=manifest)


def _check_file(root: Path, name: str, expected: str) -> None:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise UserError(f"{root / MANIFEST}: file {name!r} leaves the bundle; do not use this bundle")
    file = root / relative
    if any(p.is_symlink() for p in (file, *file.parents[: len(relative.parts) - 1])):
        raise UserError(f"{file}: is a link; a bundle holds plain files only, rebuild it")
    if not file.is_file():
        raise UserError(f"{file}: missing from the bundle; copy the whole folder or rebuild it")
    if sha256(file) != expected:
        raise UserError(f"{file}: changed since the bundle was built (sha256 differs); rebuild it")
