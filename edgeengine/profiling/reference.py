"""What the tensors of a model ought to be: the reference of docs/design.md, Exactness.

The whole model on the CPU provider, one thread, graph optimizations off. The finest chain run that way has the same bits (a build
verifies it), and yields every boundary tensor with them.
"""

from __future__ import annotations

import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Tensors
from edgeengine.devices.providers.ort import CPU, create, first_line, session_options
from edgeengine.errors import DeviceError


def reference_tensors(bundle: Bundle, inputs: Tensors) -> Tensors:
    """`inputs` and every boundary tensor and output computed from them; one session at a time.

    Real values are in range wherever they are indices, and any subgraph can be fed from them and checked against them.
    Raises DeviceError when a subgraph cannot be run.
    """
    tensors = dict(inputs)
    finest = {s.start: s for s in bundle.manifest.subgraphs if s.stop == s.start + 1}
    options = session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for position in range(bundle.manifest.segments):
        subgraph = finest[position]
        names = [o.name for o in subgraph.outputs]
        try:
            session = create(bundle.file(subgraph), options, [CPU])
            found = session.run(names, {i.name: tensors[i.name] for i in subgraph.inputs})
        except Exception as e:  # ONNX Runtime's errors have no common base below Exception
            raise DeviceError(f"{bundle.file(subgraph)}: the reference cannot be computed: {first_line(e)}") from e
        tensors.update(zip(names, found, strict=True))
    return tensors
