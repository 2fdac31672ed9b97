"""Sources by description, as a workload writes them: "random:SEED", "zeros", "file.npz"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from edgeengine.errors import UserError
from edgeengine.io.source import Source
from edgeengine.spec import TensorSpec


def make_source(text: str, specs: Sequence[TensorSpec], integer_range: tuple[int, int] | None = None) -> Source:
    """Make the source for `specs` (static shapes). Integers are drawn from 0..1 unless `integer_range` (inclusive) is given.

    Raises UserError for an unknown description, or a file that lacks an input or holds one of other shape or type.
    """
    if text == "zeros":
        return Fixed({s.name: _zeros(s) for s in specs})
    if re.fullmatch(r"random:\d{1,18}", text, re.ASCII):
        return _Random(specs, int(text.removeprefix("random:")), integer_range or (0, 1))
    if text.endswith(".npz"):
        return _File(Path(text), specs)
    raise UserError(f'inputs = {text!r}: write "random:SEED", "zeros", "file.npz" or "source:NAME"')


def _zeros(spec: TensorSpec) -> np.ndarray:
    return np.full(spec.dims, "", object) if spec.dtype == "str" else np.zeros(spec.dims, spec.dtype)


class Fixed:
    """The same inputs for every job."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self._arrays = arrays

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        return self._arrays


class _Random:
    """Standard normal floats; a few draws prepared beforehand and used in turn, so that starting a job stays cheap."""

    KEPT = 8

    def __init__(self, specs: Sequence[TensorSpec], seed: int, integer_range: tuple[int, int]):
        rng = np.random.default_rng(seed)
        self._kept = [{s.name: self._draw(s, rng, integer_range) for s in specs} for _ in range(self.KEPT)]

    @staticmethod
    def _draw(spec: TensorSpec, rng: np.random.Generator, integer_range: tuple[int, int]) -> np.ndarray:
        if spec.dtype.startswith("float"):
            return rng.standard_normal(spec.dims).astype(spec.dtype)
        if spec.dtype == "bool":
            return rng.integers(0, 2, spec.dims).astype(bool)
        if "int" in spec.dtype:
            limits = np.iinfo(spec.dtype)
            if not limits.min <= integer_range[0] <= integer_range[1] <= limits.max:
                raise UserError(f"input {spec.name!r} is {spec.dtype}: range {list(integer_range)} does not fit it")
            return rng.integers(integer_range[0], integer_range[1] + 1, spec.dims).astype(spec.dtype)
        raise UserError(f"input {spec.name!r}: no random values of type {spec.dtype}; give a .npz file or a source")

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        return self._kept[index % self.KEPT]


class _File:
    """One array per input: of the input's shape (the same for every job), or with one more leading axis, one row per job."""

    def __init__(self, file: Path, specs: Sequence[TensorSpec]):
        try:
            with file.open("rb") as f, np.load(f, allow_pickle=False) as archive:
                arrays = {s.name: archive[s.name] for s in specs}
        except (OSError, ValueError, EOFError, TypeError, BadZipFile) as e:
            raise UserError(f"{file}: cannot be read as .npz without pickles ({e})") from e
        except KeyError as e:
            raise UserError(f"{file}: {e.args[0]!s}; name one array per model input: {', '.join(s.name for s in specs)}") from e
        self._fixed: dict[str, np.ndarray] = {}
        self._rows: dict[str, np.ndarray] = {}
        for s in specs:
            array = arrays[s.name]
            if array.dtype != np.dtype(s.dtype):
                raise UserError(f"{file}: {s.name!r} is {array.dtype}, the model wants {s.dtype}")
            if array.shape == s.shape:
                self._fixed[s.name] = array
            elif array.shape[1:] == s.shape and len(array):
                self._rows[s.name] = array
            else:
                raise UserError(f"{file}: {s.name!r} has shape {array.shape}, the model wants {s.shape} or rows of it")

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        return self._fixed | {name: rows[index % len(rows)] for name, rows in self._rows.items()}
