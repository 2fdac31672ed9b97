"""A training graph on a processor of any provider, at one batch size, with the face of an ONNX Runtime session."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Provider
from edgeengine.errors import DeviceError
from edgeengine.spec import Latency, Placement, Processor, Step, SubgraphSpec, TensorSpec

_DTYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(double)": "float64", "tensor(float16)": "float16"}

_TYPES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class On:
    """Where gradient graphs run: a processor of a provider, in micro-batches of exactly `batch` examples.

    Accelerators take static shapes only; the free batch of a graph is fixed to `batch` as it is loaded.
    """

    provider: Provider
    processor: Processor
    batch: int


@dataclass(frozen=True)
class Value:
    """An input or output, its shape static, `type` as ONNX Runtime writes it: "tensor(float)"."""

    name: str
    shape: tuple[int, ...]
    type: str


class PlacedGraph:
    """One training graph of a bundle, loaded by the provider. `placement` tells what it took of it.

    Raises DeviceError where the provider cannot load it.
    """

    def __init__(self, bundle: Bundle, name: str, file: str, on: On):
        inputs, outputs = _described(bundle, file, on.batch)
        spec = SubgraphSpec(name, file, 0, 1, inputs, outputs, nodes=0)
        view = dataclasses.replace(bundle, manifest=msgspec.structs.replace(bundle.manifest, subgraphs=(spec,), segments=1))
        step = Step(name, 0, 1, on.processor.name, Latency.constant(0))
        self._run = on.provider.load(view, step, on.processor)
        self._inputs, self._outputs = ([Value(t.name, t.dims, _TYPES[t.dtype]) for t in specs] for specs in (inputs, outputs))

    @property
    def placement(self) -> Placement | None:
        return self._run.placement

    def get_inputs(self) -> list[Value]:
        return self._inputs

    def get_outputs(self) -> list[Value]:
        return self._outputs

    def run(self, names: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        made = self._run.run(dict(feeds))
        return [np.asarray(made[n]) for n in names]


def _described(bundle: Bundle, file: str, batch: int) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs of a graph, its free dimension the batch. Reads no weights."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(bundle.path / file), options, providers=["CPUExecutionProvider"])

    def specs(values: Sequence[ort.NodeArg]) -> tuple[TensorSpec, ...]:
        unknown = [v for v in values if v.type not in _DTYPES]
        if unknown:
            raise DeviceError(f"{file}: {unknown[0].name!r} is {unknown[0].type}, which no processor but the CPU is given")
        return tuple(
            TensorSpec(v.name, _DTYPES[v.type], tuple(d if isinstance(d, int) else batch for d in v.shape)) for v in values
        )

    return specs(session.get_inputs()), specs(session.get_outputs())
