"""A model into its place: written aside, then renamed; weights in a second file only where one cannot hold them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx

from edgeengine.errors import UserError

ONE_FILE_BYTES = 1 << 30
"""Larger models get their weights beside them: protobuf ends at 2 GiB, and readers hold the file more than once."""


@dataclass(frozen=True)
class Aside:
    """A model beside its place, readable there. `move` puts it into place and returns its files, the model's first."""

    model: Path
    target: Path
    files: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return sum((self.model.parent / name).stat().st_size for name in self.files)

    def move(self) -> list[str]:
        # The model last: it must never name data that is not there.
        for name in reversed(self.files):
            os.replace(self.model.parent / name, self.target.parent / name)
        return [str(self.target.parent / name) for name in self.files]


def check_target(output: str) -> Path:
    """The absolute path of the file to write. Raises UserError where it is no .onnx, or its folder is missing."""
    target = Path(output).absolute()
    if target.suffix.lower() != ".onnx":
        raise UserError(f"{output}: the result is an ONNX file; give a name that ends in .onnx")
    if target.is_dir():
        raise UserError(f"{output}: is a folder; give the name of a file in it")
    if not target.parent.is_dir():
        raise UserError(f"{output}: its folder does not exist; make it first")
    return target


@contextmanager
def written_aside(proto: onnx.ModelProto, target: Path) -> Iterator[Aside]:
    """`proto` in a folder beside `target`, for as long as the block runs. Raises UserError where the disk refuses."""
    data = f"{target.name}.data"
    large = proto.ByteSize() > ONE_FILE_BYTES
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.stem}-", dir=target.parent) as folder:
            file = Path(folder) / target.name
            onnx.save(proto, file, save_as_external_data=large, all_tensors_to_one_file=True, location=data, size_threshold=1024)
            files = (target.name, data) if (Path(folder) / data).exists() else (target.name,)
            yield Aside(file, target, files)
    except OSError as e:
        raise UserError(f"{target}: cannot be written ({e.strerror or e}); free space or choose another place") from e
