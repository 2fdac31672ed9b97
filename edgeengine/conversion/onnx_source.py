"""ONNX files as sources: kept as they are, or raised to a newer opset, weights read in from wherever they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from edgeengine.conversion.base import Arrays
from edgeengine.conversion.checks import check_graph
from edgeengine.errors import UserError
from edgeengine.graph.dataflow import analyze
from edgeengine.graph.load import Model, load_model
from edgeengine.graph.normalize import normalize
from edgeengine.graph.samples import draw as draw_inputs
from edgeengine.graph.session import RUNTIME_ERRORS, create, first_line
from edgeengine.graph.shapes import Tensors, probe

LOWEST_OPSET = 18
"""Sources below are raised to it unless an opset is asked for: what other tools and the training graphs expect."""

_INITIALIZERS_ALONE = 4
"""The IR version since which an initializer need not be an input."""


class OnnxConverter:
    """Claims .onnx files."""

    name = "onnx"

    def claims(self, source: str) -> bool:
        return source.lower().endswith(".onnx")

    def open(self, source: str, shapes: Mapping[str, Sequence[int]], values: Mapping[str, np.ndarray]) -> OnnxSource:
        model = load_model(source)
        check_graph(model.proto, source)
        return OnnxSource(model, probe(analyze(model), shapes, values))


class OnnxSource:
    """An ONNX file that runs. What `OpenSource` asks for. Raises UserError for one that does not load as it stands."""

    def __init__(self, model: Model, seen: Tensors) -> None:
        self._model, self._seen = model, seen
        self._batched = seen.batched or {}
        self.free_batch = bool(seen.batched)
        # The batch is tried at several sizes: only what was assumed of other free dimensions is news.
        sizes = {i.name: (i.shape, seen.fixed[i.name], self._batched.get(i.name, seen.fixed[i.name])) for i in seen.inputs}
        open_ended = any(isinstance(d, str) and f == b for dims in sizes.values() for d, f, b in zip(*dims, strict=True))
        self.notes = list(seen.assumed) if open_ended else []
        if not self.free_batch:
            shapes = ", ".join(f"{i.name} {list(i.shape)}" for i in seen.inputs)
            self.notes.append(f"the source fixes the batch ({shapes}), so the model does: export it with a free batch axis")
        self.tools = {"onnx": onnx.__version__}
        try:
            self._session = create(str(model.path), optimized=False)
        except RUNTIME_ERRORS as e:
            raise UserError(f"{model.path}: ONNX Runtime cannot load it ({first_line(e)}); mend or export it again") from e
        self._outputs = [o.name for o in model.proto.graph.output]

    def export(self, opset: int | None) -> onnx.ModelProto:
        proto = onnx.load(self._model.path)
        normalize(proto)
        proto.ir_version = max(proto.ir_version, _INITIALIZERS_ALONE)
        now = self._model.opset.get("", 0)
        wanted = max(now, LOWEST_OPSET) if opset is None else opset
        return proto if wanted == now else _with_opset(proto, wanted, now, self._model.path)

    def feeds(self, batch: int, draw: int) -> Arrays:
        shapes = {
            name: tuple(batch if b != s else s for s, b in zip(shape, self._batched.get(name, shape), strict=True))
            for name, shape in self._seen.fixed.items()
        }
        kept = {n: v for n, v in self._seen.values.items() if v.shape == shapes[n]}
        return draw_inputs(self._seen.inputs, shapes, kept, draw)

    def run(self, feeds: Arrays) -> list[np.ndarray]:
        try:
            return list(self._session.run(self._outputs, feeds))
        except RUNTIME_ERRORS as e:
            raise UserError(f"{self._model.path}: does not run ({first_line(e)}); give sizes with --shape") from e


def _with_opset(proto: onnx.ModelProto, wanted: int, now: int, path: Path) -> onnx.ModelProto:
    """Raised (or lowered) by onnx's version converter, which keeps neither functions nor metadata."""
    metadata = list(proto.metadata_props)
    try:
        if proto.functions:
            proto = onnx.inliner.inline_local_functions(proto)
        converted = onnx.version_converter.convert_version(proto, wanted)
    except (onnx.version_converter.ConvertError, RuntimeError, ValueError, EncodeError) as e:
        reason = (str(e).strip() or type(e).__name__).splitlines()[0]
        raise UserError(f"{path}: cannot go from opset {now} to {wanted} ({reason}); keep it with --opset {now}") from e
    imports = {o.domain: o for o in converted.opset_import}
    converted.opset_import.extend(o for o in proto.opset_import if o.domain not in imports)
    converted.ir_version = max(proto.ir_version, onnx.helper.find_min_ir_version_for(list(converted.opset_import)))
    del converted.metadata_props[:]
    converted.metadata_props.extend(metadata)
    return converted
