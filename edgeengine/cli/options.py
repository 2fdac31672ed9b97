"""Options that several commands read the same way."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgeengine.errors import UserError
from edgeengine.spec import parse_shape


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
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as e:
        raise UserError(f"{option} {file}: cannot be read as .npz without pickles ({e})") from e
