"""Where learned weights live: STATE/<bundle hash>/, versions and training states as safetensors, and a manifest.

The manifest is the commit point: files are written first, under names of their own content, then the manifest is replaced
by rename; the one before stays as manifest.previous.json and is read where the present one, or what it names, is damaged.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from safetensors.numpy import load, save

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError

SCHEMA = 1
MANIFEST, PREVIOUS = "manifest.json", "manifest.previous.json"
_ID = 16  # hex digits of a version's name


class StateManifest(msgspec.Struct, frozen=True):
    """`version` and `state` are names of files without ending; `hashes` their sha256."""

    schema: int
    bundle: str
    version: str
    state: str
    hashes: dict[str, str]


class VersionStore:
    """The learned weights of one bundle under a state folder."""

    def __init__(self, state: Path, bundle: Bundle):
        self.folder, self._bundle = state / bundle.hash, bundle

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def commit(self, version: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> str:
        """Write both and make them the present ones, whole or not at all; returns the version's name."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            named = {}
            for kind, tensors in (("version", version), ("state", state)):
                raw = save({n: np.asarray(a, order="C") for n, a in tensors.items()})
                digest = hashlib.sha256(raw).hexdigest()
                name = digest[:_ID] if kind == "version" else f"state-{digest[:_ID]}"
                _write(self.file(name), raw)
                named[kind] = (name, digest)
            manifest = StateManifest(SCHEMA, self._bundle.hash, named["version"][0], named["state"][0], dict(named.values()))
            present = self.folder / MANIFEST
            if present.exists():
                _write(self.folder / PREVIOUS, present.read_bytes())
            _write(present, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        except OSError as e:
            raise UserError(f"{self.folder}: cannot be written ({e}); free some space or give another --state") from e
        return named["version"][0]

    def present(self) -> tuple[str, dict[str, np.ndarray], dict[str, np.ndarray]] | None:
        """(name, version, training state), None before the first commit; the previous ones where the present are damaged.

        Raises UserError where both are.
        """
        if not (self.folder / MANIFEST).exists() and not (self.folder / PREVIOUS).exists():
            return None
        problems = []
        for name in (MANIFEST, PREVIOUS):
            try:
                manifest = msgspec.json.decode((self.folder / name).read_bytes(), type=StateManifest)
                return manifest.version, self._read(manifest, manifest.version), self._read(manifest, manifest.state)
            except (OSError, msgspec.DecodeError, _Damaged) as e:
                problems.append(f"{name}: {e}")
        raise UserError(f"{self.folder}: no readable version ({'; '.join(problems)}); remove the folder to start anew")

    def _read(self, manifest: StateManifest, name: str) -> dict[str, np.ndarray]:
        raw = self.file(name).read_bytes()
        if hashlib.sha256(raw).hexdigest() != manifest.hashes.get(name):
            raise _Damaged(f"{name} differs from its hash")
        return load(raw)


class _Damaged(Exception):
    """A file that is not what its manifest says."""


def _write(file: Path, raw: bytes) -> None:
    """Aside, flushed to disk, then renamed; the folder's entry as well."""
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    with aside.open("wb") as f:
        f.write(raw)
        f.flush()
        os.fsync(f.fileno())
    aside.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
