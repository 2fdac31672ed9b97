"""The smart-watch recordings, one person at a time.

They come as one pickled dictionary inside seglearn's wheel. A pickle may run code, so it is opened in one function,
only when its digest is the known one, and kept as plain arrays from then on.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coach import packages
from edgeengine.errors import UserError

RATE_HZ = 50
CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")
SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
"""Of the data file as seglearn 1.2.5 ships it."""


@dataclass(frozen=True)
class Recording:
    """One set of one exercise, from the watch on one wrist.

    `samples` is float32 [n, 6], one row each 1/50 s, columns as in `CHANNELS`: acceleration in g, then angular rate in
    rad/s. `side` is 0 (left wrist) or 1 (right).
    """

    label: str
    side: int
    samples: np.ndarray


def load_recordings(subject: int, cache: Path) -> list[Recording]:
    """All recordings of `subject` (1..10), through `cache`: a folder, made if absent, of one .npz per subject.

    Raises UserError where the data package is absent or of another version, the subject unknown, or the cache unusable.
    """
    file = cache / f"watch-{SHA256[:8]}-subject-{subject}.npz"
    if not file.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            _open_pickle_once(packages.locate(packages.WATCH), subject, file)
        except OSError as e:
            raise UserError(f"{file}: cannot be kept ({e.strerror}); give a folder that can be written") from e
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            labels, sides = archive["labels"], archive["sides"]
            return [
                Recording(str(labels[i]), int(sides[i]), archive[f"samples_{i}"].astype(np.float32, copy=False))
                for i in range(len(labels))
            ]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as e:
        raise UserError(f"{file}: not the recordings kept earlier ({e}); delete the file, it is made again") from e


def _open_pickle_once(source: Path, subject: int, target: Path) -> None:
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    if digest != SHA256:
        wanted = f"{packages.WATCH.distribution}=={packages.WATCH.version}"
        raise UserError(f"{source}: not the file of {wanted}, not opened; run: pip install --no-deps {wanted}")
    table = np.load(source, allow_pickle=True).item()
    mine = [i for i, owner in enumerate(table["subject"]) if owner == subject]
    if not mine:
        known = sorted({int(owner) for owner in table["subject"]})
        raise UserError(f"{source}: no recordings of subject {subject}; known: {known[0]}..{known[-1]}")
    arrays = {f"samples_{k}": np.ascontiguousarray(table["X"][i], np.float32) for k, i in enumerate(mine)}
    arrays["labels"] = np.array([str(table["y_labels"][int(table["y"][i])]) for i in mine])
    arrays["sides"] = np.array([int(table["side"][i]) for i in mine], np.int64)
    # Two runs may fill the same cache: each writes a file of its own, and the rename is atomic.
    aside = target.with_suffix(f".{os.getpid()}.tmp")
    try:
        with aside.open("wb") as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        os.replace(aside, target)
    finally:
        aside.unlink(missing_ok=True)
