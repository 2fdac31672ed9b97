"""Where learning lives: STATE/<bundle hash>/. Versions, training state and samples as safetensors, and a manifest.

The manifest is the commit point: files are written first, under names of their own content, then the manifest is replaced
by rename; the one before stays as manifest.previous.json and is read where the present one, or what it names, is damaged. What
neither names is removed. Only the state after each training step lies beside it (`keep`), until a manifest takes it up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.spec import Versioned
from edgeengine.training.claim import LOCK
from edgeengine.training.files import write_file
from edgeengine.training.slots import NAMES, Slots
from edgeengine.training.state import Arrays

SCHEMA = 2
MANIFEST, PREVIOUS = "manifest.json", "manifest.previous.json"
KEPT_VERSIONS = 4
_ID = 16  # hex digits of a file's name


class VersionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A version that was published. `step` counts the training steps before it; `scores` are the guard's, by domain, of the
    version before it and of itself; `cause` says why it was taken back, where it was.
    """

    name: str
    step: int = 0
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    cause: str = ""


class StateManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`serving` and `fallback` name the version in service and the one that a rollback brings back; "" is the bundle itself.

    `state`, `samples` and `journal` name files; `learned` is the journal's position up to which `state` has seen it. A state that
    was kept under a number above `kept` is newer than `state`. `hashes` are the sha256 of the files.
    """

    schema: int
    bundle: str
    serving: str = ""
    fallback: str = ""
    versions: tuple[VersionRecord, ...] = ()
    state: str = ""
    samples: str = ""
    journal: str = ""
    learned: int = 0
    kept: int = 0
    hashes: dict[str, str] = {}

    @property
    def files(self) -> set[str]:
        """The files it needs, but for the journal."""
        return {n for n in (self.serving, self.fallback, self.state, self.samples) if n} | {
            v.name for v in self.versions[-KEPT_VERSIONS:]
        }


class VersionStore:
    """What was learned for one bundle under a state folder. `put` files, then `commit` a manifest that names them.

    Reads the present manifest, or where it is damaged the one before. Raises UserError where both are, and for the state
    of another bundle or of a newer schema.
    """

    def __init__(self, state: Path, bundle: Bundle):
        self.folder, self._bundle = state / bundle.hash, bundle.hash
        self.manifest = self._before = self._present()
        self._hashes = dict(self.manifest.hashes)
        self._slots = Slots(self.folder, self.manifest.kept)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def put(self, tensors: Mapping[str, np.ndarray], kind: str = "") -> str:
        """Write a file, named by its content after `kind`; returns its name. It counts once a manifest names it.

        Raises UserError where it cannot be written.
        """
        raw = save({n: np.asarray(a, order="C") for n, a in tensors.items()})
        digest = hashlib.sha256(raw).hexdigest()
        name = f"{kind}-{digest[:_ID]}" if kind else digest[:_ID]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_file(self.file(name), raw)
        except OSError as e:
            raise self._full(e) from e
        self._hashes[name] = digest
        return name

    def put_state(self, tensors: Mapping[str, np.ndarray], learned: int) -> dict[str, object]:
        """The fields of a manifest with this state, newer than all that were kept."""
        return {"state": self.put(tensors, "state"), "learned": learned, "kept": self._slots.number}

    def keep(self, tensors: Mapping[str, np.ndarray], learned: int) -> None:
        """Keep the state after a step: safe from a kill, not from a power cut, until a manifest has it.

        Raises UserError where it cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._slots.write(tensors, learned)
        except OSError as e:
            raise self._full(e) from e

    def state(self) -> tuple[Arrays, int] | None:
        """The newest state, and the journal's position up to which it has seen it; None where there is none."""
        kept = self._slots.newest(self.manifest.kept)
        if kept is not None:
            return kept.tensors, kept.learned
        return (self.read(self.manifest.state), self.manifest.learned) if self.manifest.state else None

    def commit(self, manifest: StateManifest, *, forget: bool = False) -> None:
        """Make `manifest` the present one, whole or not at all. With `forget` the one before is not kept, nor its files, nor
        what was kept after steps.

        Raises UserError where it cannot be written.
        """
        hashes = {n: self._hashes[n] for n in sorted(manifest.files)}
        manifest = msgspec.structs.replace(manifest, hashes=hashes)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not forget:
                write_file(self.folder / PREVIOUS, _encoded(self.manifest))
                self._before = self.manifest
            write_file(self.folder / MANIFEST, _encoded(manifest))
            if forget:
                write_file(self.folder / PREVIOUS, _encoded(manifest))
                self._before = manifest
                self._slots.clear()
            self.manifest, self._hashes = manifest, {**self._before.hashes, **hashes}
            self._sweep(self._before)
        except OSError as e:
            raise self._full(e) from e

    def read(self, name: str) -> Arrays:
        """The tensors of a file that the present manifest names. Raises UserError where it is damaged."""
        try:
            return self._read(name, self.manifest.hashes)
        except _Damaged as e:
            raise UserError(f"{self.folder}: {e}; remove the folder to start anew") from e

    def version(self, name: str) -> Arrays:
        """The tensors of a version; none for "", the bundle itself."""
        return self.read(name) if name else {}

    def _full(self, error: OSError) -> UserError:
        return UserError(f"{self.folder}: cannot be written ({error}); free some space or give another --state")

    def _present(self) -> StateManifest:
        problems = []
        for name in (MANIFEST, PREVIOUS):
            file = self.folder / name
            if file.exists():
                try:
                    return self._whole(file)
                except _Damaged as e:
                    problems.append(f"{name}: {e}")
        if problems:
            raise UserError(f"{self.folder}: no readable version ({'; '.join(problems)}); remove the folder to start anew")
        return StateManifest(SCHEMA, self._bundle)

    def _whole(self, file: Path) -> StateManifest:
        """The manifest in `file`, all that it names looked at."""
        try:
            raw = file.read_bytes()
            schema = msgspec.json.decode(raw, type=Versioned).schema
            if schema != SCHEMA:
                raise UserError(f"{file}: state of schema {schema}, this edgeengine reads {SCHEMA}; remove the folder")
            manifest = msgspec.json.decode(raw, type=StateManifest)
        except (OSError, msgspec.DecodeError) as e:
            raise _Damaged(str(e)) from e
        if manifest.bundle != self._bundle:
            raise UserError(f"{file}: the state of another bundle ({manifest.bundle[:12]}); remove the folder to start anew")
        for name in manifest.files:
            self._read(name, manifest.hashes)
        return manifest

    def _read(self, name: str, hashes: Mapping[str, str]) -> Arrays:
        try:
            raw = self.file(name).read_bytes()
            if hashlib.sha256(raw).hexdigest() != hashes.get(name):
                raise _Damaged(f"{name} differs from its hash")
            return load(raw)
        except (OSError, SafetensorError) as e:
            raise _Damaged(f"{name}: {e}") from e

    def _sweep(self, other: StateManifest) -> None:
        """Remove what neither the present manifest nor `other` names."""
        kept = {f"{n}.safetensors" for n in self.manifest.files | other.files}
        kept |= {self.manifest.journal, other.journal, MANIFEST, PREVIOUS, LOCK, *NAMES}
        for file in self.folder.iterdir():
            if file.name not in kept:
                file.unlink(missing_ok=True)


def _encoded(manifest: StateManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


class _Damaged(Exception):
    """A file that is not what its manifest says."""
