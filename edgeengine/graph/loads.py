"""Generated models of known work, to measure a machine with: how fast it multiplies, reads memory, starts, copies.

Each is one plain graph of operators that every provider has, written as a bundle of one subgraph. Nothing is verified here:
whoever measures them checks their outputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgeengine.bundle import MANIFEST, Bundle, sha256
from edgeengine.graph.manifest import encode
from edgeengine.spec.bundle import SCHEMA, Exactness, Manifest, SubgraphSpec
from edgeengine.spec.tensor import TensorSpec

OPSET, IR_VERSION = 17, 8
NODES = 65  # of the load "nodes": 64 more than of "launch"
SIDE = 512  # of the product of "compute": 134 million MACs, some milliseconds on one core
MATRICES = ((512, 512), (1024, 2048), (2048, 4096))  # of "memory": 1, 8 and 32 MiB, from a core's caches to beyond them
COPIES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)  # bytes in, and as many out


class Load(NamedTuple):
    """`amount`: the MACs, or bytes moved, of one run."""

    bundle: Bundle
    amount: int


def make_loads(folder: Path) -> dict[str, Load]:
    """The loads by name, as bundles in `folder`: "launch", "nodes", "compute", "memory:<bytes>", "copy:<bytes>".

    "neighbour:compute" and "neighbour:memory" are for whoever runs beside: sessions over the same file would read the same
    memory, and one would find in the shared cache what the other brought there.
    """
    return {
        "launch": Load(_bundle(folder, "launch", _chain(1), (1,), (1,)), 0),
        "nodes": Load(_bundle(folder, "nodes", _chain(NODES), (1,), (1,)), 0),
        "compute": _product(folder, "compute", SIDE, SIDE, SIDE)._replace(amount=SIDE**3),
        **{f"memory:{4 * r * c}": _product(folder, f"memory-{4 * r * c}", 1, r, c) for r, c in MATRICES},
        "neighbour:compute": _product(folder, "neighbour-compute", SIDE, SIDE, SIDE),
        "neighbour:memory": _product(folder, "neighbour-memory", 1, *MATRICES[-1]),
        **{f"copy:{n}": Load(_bundle(folder, f"copy-{n}", _chain(1), (n // 4,), (n // 4,)), n) for n in COPIES},
    }


def _chain(nodes: int) -> list[onnx.NodeProto]:
    """Neg and Abs in turn: no runtime merges them."""
    names = ["x", *(f"t{i}" for i in range(1, nodes)), "y"]
    return [helper.make_node("Neg" if i % 2 == 0 else "Abs", [names[i]], [names[i + 1]]) for i in range(nodes)]


def _product(folder: Path, name: str, rows: int, inner: int, columns: int) -> Load:
    """x [rows, inner] times a constant matrix, whose bytes are the amount."""
    weights = np.random.default_rng(0).standard_normal((inner, columns), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = _bundle(folder, name, nodes, (rows, inner), (rows, columns), [numpy_helper.from_array(weights, "w")])
    return Load(made, weights.nbytes)


def _bundle(
    folder: Path,
    name: str,
    nodes: Sequence[onnx.NodeProto],
    x: tuple[int, ...],
    y: tuple[int, ...],
    weights: Sequence[onnx.TensorProto] = (),
) -> Bundle:
    root = folder / f"{name}.edge"
    root.mkdir(parents=True, exist_ok=True)
    inputs, outputs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x), ("y", y)))
    graph = helper.make_graph(nodes, name, [inputs], [outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.save(model, root / "s0_1.onnx")
    specs = (TensorSpec("x", "float32", x),), (TensorSpec("y", "float32", y),)
    weight_bytes = sum(len(w.raw_data) for w in weights)
    subgraph = SubgraphSpec(name, "s0_1.onnx", 0, 1, *specs, len(nodes), weight_bytes=weight_bytes)
    digest = sha256(root / "s0_1.onnx")
    manifest = Manifest(
        schema=SCHEMA, name=name, source="generated", source_sha256=digest, tools={"onnx": onnx.__version__},
        ir_version=IR_VERSION, opset={"": OPSET}, inputs=specs[0], outputs=specs[1], shapes={"x": x}, segments=1,
        subgraphs=(subgraph,), files={"s0_1.onnx": digest}, exactness=Exactness(0, False, 0.0, 0.0, 0.0),
    )  # fmt: skip
    raw = encode(manifest)
    (root / MANIFEST).write_bytes(raw)
    return Bundle(root, hashlib.sha256(raw).hexdigest(), manifest)
