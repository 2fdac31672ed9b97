"""What training changes, as one value: parameters, running statistics, the optimizer's state, the number of steps made.

A step makes a new one from the old; nothing is written in place, so a step that is given up has changed nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from edgeengine.bundle import WEIGHTS, Bundle
from edgeengine.errors import UserError
from edgeengine.spec.training import TrainingSpec

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class TrainingState:
    """`slots` are keyed PARAMETER/SLOT, as in the optimizer graph. All are float32."""

    parameters: Arrays
    statistics: Arrays
    slots: Arrays
    step: int

    def tensors(self) -> Arrays:
        """All of it under one name each, for a file: parameter:NAME, statistic:NAME, slot:PARAMETER/SLOT, step."""
        groups = {"parameter": self.parameters, "statistic": self.statistics, "slot": self.slots}
        named = {f"{kind}:{name}": a for kind, group in groups.items() for name, a in group.items()}
        return named | {"step": np.array(self.step, np.int64)}


def training_spec(bundle: Bundle) -> TrainingSpec:
    """Raises UserError for a bundle without training graphs."""
    if bundle.manifest.training is None:
        raise UserError(f"{bundle.path}: has no training graphs; make them with 'edgeengine trainable MODEL -o {bundle.path}'")
    return bundle.manifest.training


def start_of(bundle: Bundle) -> TrainingState:
    """The state before the first step: the bundle's own weights, and zeros."""
    spec = training_spec(bundle)
    held = load_file(bundle.path / spec.adapters) if spec.adapters else {}
    base = bundle.path / WEIGHTS
    parameters = {p.name: held[p.name] if p.offset < 0 else _read(base, p.offset, p.shape) for p in spec.parameters}
    statistics = {s.name: _read(base, s.offset, s.shape) for s in spec.statistics}
    slots = {f"{p.name}/{s}": np.zeros(p.shape, np.float32) for p in spec.parameters for s in spec.slots}
    return TrainingState(parameters, statistics, slots, 0)


def _read(file: object, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.fromfile(file, np.float32, math.prod(shape), offset=offset).reshape(shape)  # type: ignore[call-overload,no-any-return]


def restored(bundle: Bundle, tensors: Arrays) -> TrainingState:
    """The state that `TrainingState.tensors` gave. Raises UserError where it is another bundle's."""
    start = start_of(bundle)
    if tensors.keys() != start.tensors().keys():
        missing = sorted(start.tensors().keys() ^ tensors.keys())[0]
        raise UserError(f"{bundle.path}: this training state is of another bundle ({missing!r}); start anew")
    for name, array in start.tensors().items():
        if tensors[name].shape != array.shape or tensors[name].dtype != array.dtype:
            raise UserError(f"{bundle.path}: {name!r} of this training state has another shape; start anew")

    def group(kind: str, names: Arrays) -> Arrays:
        return {n: tensors[f"{kind}:{n}"] for n in names}

    return TrainingState(
        group("parameter", start.parameters),
        group("statistic", start.statistics),
        group("slot", start.slots),
        int(tensors["step"]),
    )


def read_tensors(file: object) -> Arrays:
    """A safetensors file. Raises UserError where it is none."""
    try:
        return load_file(file)  # type: ignore[arg-type]
    except (OSError, SafetensorError) as e:
        raise UserError(f"{file}: cannot be read as safetensors ({e}); give a version that 'edgeengine finetune' wrote") from e
