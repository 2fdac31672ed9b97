"""Options that several commands read the same way."""

from __future__ import annotations

import math
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from edgeengine.errors import UserError
from edgeengine.spec import TensorSpec, format_shape, parse_shape

OPTION_HELP = "Option of an accelerator's provider or session: PROCESSOR.KEY=VALUE. Repeat for more."


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
        if text.endswith(".npz"):  # the path may hold a "="
            inputs |= _archive(Path(text), option)
        elif separator:
            inputs[name] = _scalar(value, name, option)
        else:
            raise UserError(f"{option} {text!r} is neither name=VALUE nor a .npz file")
    return inputs


def parse_options(given: list[str] | None) -> dict[str, dict[str, str]]:
    """["npu-qnn.htp_performance_mode=burst"] -> {"npu-qnn": {"htp_performance_mode": "burst"}}: by processor."""
    options: dict[str, dict[str, str]] = {}
    for text in given or []:
        left, separator, value = text.partition("=")
        processor, dot, key = left.partition(".")
        if not (separator and dot and processor and key):
            raise UserError(f"--option {text!r} is not like PROCESSOR.KEY=VALUE")
        if options.setdefault(processor, {}).setdefault(key, value) != value:
            raise UserError(f"--option {processor}.{key} is given twice, as {options[processor][key]!r} and {value!r}")
    return options


def _scalar(value: str, name: str, option: str) -> np.ndarray:
    try:
        return np.array(float(value) if any(c in value for c in ".eEni") else np.int64(int(value)))
    except (ValueError, OverflowError) as e:
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
