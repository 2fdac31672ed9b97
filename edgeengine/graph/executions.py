"""What ran inside the bodies of control-flow nodes, with which shapes: read from a profile of one unoptimized run.

Static inference knows little inside bodies and tensors there cannot be made outputs. ONNX Runtime's profile lists every
node event with its input and output shapes; every node is given its path as name first, since names are optional and
repeat.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from edgeengine.graph.dataflow import bodies
from edgeengine.graph.source import Source

Shapes = tuple[tuple[int, ...], ...]
_EVENT = "_kernel_time"


def executed_in_bodies(source: Source, feeds: Mapping[str, np.ndarray]) -> dict[str, tuple[tuple[Shapes, Shapes], ...]]:
    """Path of a node inside a body -> (input shapes, output shapes) of each of its executions; see `body_path`."""
    proto = onnx.ModelProto()
    proto.CopyFrom(source.proto)
    paths: set[str] = set()
    for i, node in enumerate(proto.graph.node):
        node.name = f"top.{i}"
        _rename(node, str(i), paths)
    with tempfile.TemporaryDirectory(prefix="edgeengine-") as folder:
        session = source.create(proto, False, profile=str(Path(folder) / "run"))
        session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text())
    found: dict[str, list[tuple[Shapes, Shapes]]] = {}
    for event in events:
        path = event.get("name", "").removesuffix(_EVENT)
        if event.get("cat") == "Node" and event["name"].endswith(_EVENT) and path in paths:
            args = event.get("args", {})
            found.setdefault(path, []).append((_shapes(args, "input_type_shape"), _shapes(args, "output_type_shape")))
    return {path: tuple(runs) for path, runs in found.items()}


def body_path(path: str, body: int, node: int) -> str:
    """The path of node `node` in the body number `body` of the node at `path`; a top-level node's path is its index."""
    return f"{path}.{body}.{node}"


def _rename(node: onnx.NodeProto, path: str, paths: set[str]) -> None:
    for b, body in enumerate(bodies(node)):
        for n, inner in enumerate(body.node):
            inner.name = body_path(path, b, n)
            paths.add(inner.name)
            _rename(inner, inner.name, paths)


def _shapes(args: Mapping[str, list[dict[str, list[int]]]], key: str) -> Shapes:
    return tuple(tuple(dims) for entry in args.get(key, ()) for dims in entry.values())
