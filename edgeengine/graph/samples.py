"""Random inputs to try and verify a model with. The same name, shape and run always draw the same values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from edgeengine.graph.dtypes import numpy_dtype
from edgeengine.spec.tensor import TensorSpec

_WORDS = ("", "a", "edge", "engine", "été")


def draw(
    specs: Iterable[TensorSpec],
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, np.ndarray],
    run: int,
) -> dict[str, np.ndarray]:
    """One array per input: `values` where it has the name, else random.

    Floats are standard normal, integers 0 or 1 (an index or a flag that is nearly always legal), bools and strings any.
    """
    return {s.name: values[s.name] if s.name in values else _random(s, shapes[s.name], run) for s in specs}


def _random(spec: TensorSpec, shape: tuple[int, ...], run: int) -> np.ndarray:
    rng = np.random.default_rng([run, *spec.name.encode()])
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype == "str":
        return np.array(rng.choice(_WORDS, shape), object)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype)
