"""Reads the smart-watch exercise recordings that seglearn's wheel carries.

The recordings are one pickled dictionary in a .npy file. This is the only module that opens it.
"""

import hashlib
import io
import pickle
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from edgeengine_converters.errors import ConversionError

DISTRIBUTION = "seglearn"
DATA_FILE = "seglearn/data/watch_dataset.npy"
DATA_LICENCE = "BSD-3-Clause"
DATA_COPYRIGHT = "Copyright (c) 2018, David M. Burns"
DATA_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"
"""SHA-256 of the file as seglearn 1.2.5 ships it."""

CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")
RATE_HZ = 50


@dataclass(frozen=True)
class Recording:
    """One set of one exercise by one person, from the watch on one wrist.

    `samples` is float32 [n, 6], one row each 1/50 s, columns in the order of `CHANNELS`: acceleration in g,
    then angular rate in rad/s. `label` is 0..6, `subject` is 1..10, `side` is 0 (left wrist) or 1 (right).
    """

    samples: np.ndarray
    label: int
    subject: int
    side: int


@dataclass(frozen=True)
class Recordings:
    """Every recording of the data set, with the names of the labels and the SHA-256 of the file read."""

    items: tuple[Recording, ...]
    labels: tuple[str, ...]
    sha256: str

    @property
    def subjects(self) -> tuple[int, ...]:
        """The subjects that occur, ascending."""
        return tuple(sorted({item.subject for item in self.items}))


class _ArraysOnly(pickle.Unpickler):
    """Builds numpy arrays and plain containers, and nothing else: a pickle may otherwise run any code."""

    # The file was written before numpy 2 renamed its core package; both names mean the same function.
    _ALLOWED: ClassVar = {
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in this file")
        if name == "_reconstruct":
            return np.ndarray([0]).__reduce__()[0]
        return super().find_class(module, name)


def find_file(path: Path | None = None) -> Path:
    """The data file: `path` when given, else the one in the installed seglearn distribution.

    Raises ConversionError when there is no such file.
    """
    if path is None:
        try:
            located = metadata.distribution(DISTRIBUTION).locate_file(DATA_FILE)
        except metadata.PackageNotFoundError as error:
            raise ConversionError(
                "not installed, and it carries the exercise recordings",
                where=DISTRIBUTION,
                fix="run 'pip install --no-deps seglearn==1.2.5' or pass --data PATH",
            ) from error
        path = Path(str(located))
    if not path.is_file():
        raise ConversionError(
            "no such file", where=str(path), fix="pass --data with the path of watch_dataset.npy"
        )
    return path


def read(path: Path | None = None) -> Recordings:
    """Reads the data file (see `find_file`) and checks its shape.

    Raises ConversionError when the file is missing, is not such a file, or holds other columns.
    """
    path = find_file(path)
    content, table = _open(path)
    try:
        labels = tuple(str(label) for label in table["y_labels"])
        columns = tuple(str(column) for column in table["X_labels"])
        items = tuple(
            Recording(np.ascontiguousarray(samples, dtype=np.float32), int(label), int(subject), int(side))
            for samples, label, subject, side in zip(
                table["X"], table["y"], table["subject"], table["side"], strict=True
            )
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _refused(path, f"unexpected content ({type(error).__name__}: {error})") from error
    if columns != CHANNELS:
        raise _refused(path, f"columns {columns}, expected {CHANNELS}")
    for index, item in enumerate(items):
        if item.samples.ndim != 2 or item.samples.shape[1] != len(CHANNELS):
            raise _refused(
                path, f"recording {index} has shape {item.samples.shape}, expected [n, {len(CHANNELS)}]"
            )
        if not np.isfinite(item.samples).all():
            raise _refused(path, f"recording {index} has a value that is not finite")
        if not 0 <= item.label < len(labels):
            raise _refused(path, f"recording {index} has label {item.label}, expected 0..{len(labels) - 1}")
    return Recordings(items, labels, hashlib.sha256(content).hexdigest())


def _open(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes of the file and the dictionary pickled in it."""
    try:
        content = path.read_bytes()
        stream = io.BytesIO(content)
        np.lib.format.read_magic(stream)
        np.lib.format.read_array_header_1_0(stream)
        # An object array of no dimensions is pickled as an array that holds the one object.
        table = _ArraysOnly(stream).load()[()]
    # A damaged pickle can raise nearly any of these from inside the unpickler.
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        EOFError,
        ImportError,
        pickle.UnpicklingError,
    ) as error:
        raise _refused(path, f"cannot be read ({type(error).__name__}: {error})") from error
    if not isinstance(table, dict):
        raise _refused(path, f"holds a {type(table).__name__}, expected a dictionary")
    return content, table


def _refused(path: Path, what: str) -> ConversionError:
    return ConversionError(what, where=str(path), fix="use watch_dataset.npy of seglearn 1.2.5")
