"""Options that several commands read the same way."""

from __future__ import annotations

import math
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from edgeengine.errors import UserError
from edgeengine.spec import TensorSpec, format_shape, parse_shape


def parse_shapes(given: list[str] | None) -> dict[str, tuple[int, ...]]:
    """["x=1x3x224x224"] -> {"x": (1, 3, 224, 224)}. The name is what stands before the last "="."""
    shapes = {}
    for text in given or []:
        name, separator, dims = text.rpartition("=")
        if not separator:
            raise UserError(f"--shape {text!r} is not like name=1x3x224x224")
        shapes[name] = parse_shape(dims, f"--shape {name}")
    return shapes


def parse_inputs(given: list[str] | None, option: str = "--input") -> dict[str, np.ndarray]:
    """["sr=16000", "values.npz"] -> arrays by input name."""
    inputs: dict[str, np.ndarray] = {}
    for text in given or []:
        name, separator, value = text.rpartition("=")
        if separator:
            inputs[name] = _scalar(value, name, option)
        elif text.endswith(".npz"):
            inputs |= _archive(Path(text), option)
        else:
            raise UserError(f"{option} {text!r} is neither name=VALUE nor a .npz file")
    return inputs


def _scalar(value: str, name: str, option: str) -> np.ndarray:
    try:
        return np.array(float(value) if any(c in value for c in ".eEni") else int(value))
    except ValueError as e:
        raise UserError(f"{option} {name}={value}: not a number; arrays come from a .npz file") from e


def _archive(file: Path, option: str) -> dict[str, np.ndarray]:
    try:
        with file.open("rb") as f, np.load(f, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, TypeError, BadZipFile) as e:
        raise UserError(f"{option} {file}: cannot be read as .npz without pickles ({e})") from e


def fit_input(value: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """The value as the input wants it: a scalar for one of a single element, else of its shape. Raises UserError."""
    if value.size != math.prod(spec.dims):
        raise UserError(f"--input {spec.name}: {value.size} values, the model wants {format_shape(spec.dims)}; give a .npz file")
    return np.asarray(value, spec.dtype).reshape(spec.dims)
