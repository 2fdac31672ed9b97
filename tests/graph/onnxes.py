"""Builders of tiny models, and an oracle of our own: run a chain of a bundle's subgraphs and compare bits with the source."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from edgeengine.bundle import Bundle

FLOAT = TensorProto.FLOAT
node = helper.make_node
value = helper.make_tensor_value_info


def weight(name: str, array: object, dtype: str = "float32") -> TensorProto:
    return numpy_helper.from_array(np.asarray(array, np.dtype(dtype)), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto | str],
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
    ir: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    outs = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(list(nodes), "g", list(inputs), outs, list(weights))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in (domains or {}).items())]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def x_in(*dims: int | str, name: str = "x", dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return value(name, dtype, list(dims))


def session(model: str | bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_source(path: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    s = session(str(path))
    names = list(dict.fromkeys(o.name for o in s.get_outputs()))
    return dict(zip(names, s.run(names, dict(feeds)), strict=True))


def run_chain(bundle: Bundle, feeds: Mapping[str, np.ndarray], bounds: Sequence[int] | None = None) -> dict[str, np.ndarray]:
    """Run the subgraphs [bounds[0], bounds[1]), [bounds[1], bounds[2]), …; the finest chain by default."""
    manifest = bundle.manifest
    bounds = bounds if bounds is not None else range(manifest.segments + 1)
    tensors = dict(feeds)
    for start, stop in itertools.pairwise(bounds):
        sub = next(s for s in manifest.subgraphs if (s.start, s.stop) == (start, stop))
        names = [o.name for o in sub.outputs]
        results = session(str(bundle.file(sub))).run(names, {i.name: tensors[i.name] for i in sub.inputs})
        tensors.update(zip(names, results, strict=True))
    return {o.name: tensors[o.name] for o in manifest.outputs}


def assert_same_bits(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        np.testing.assert_array_equal(a[name], b[name], err_msg=name, strict=True)


def protos(bundle: Bundle) -> dict[str, onnx.ModelProto]:
    """Subgraph name -> its proto, weights by reference."""
    return {s.name: onnx.load(bundle.file(s), load_external_data=False) for s in bundle.manifest.subgraphs}
