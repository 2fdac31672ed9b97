"""A source model as sessions run it: its own weights, whatever their size, without a second copy in memory.

`load.py` leaves large initializers in the model's file, at offsets that ONNX Runtime may not map. While a Source is
open they lie, aligned, in a temporary file of their own; a few megabytes are put back into the proto instead.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime as ort

from edgeengine.graph.load import read_proto
from edgeengine.graph.pins import pinned
from edgeengine.graph.resident import dropping
from edgeengine.graph.session import create
from edgeengine.graph.tensors import copy_bytes, external_slice, is_external, nbytes

# Weights below this are put back into the proto; sessions of models above it are lean; above the next one the pages of
# weight files are dropped as they gather.
_INLINE_BYTES = 16 << 20
LEAN_BYTES = 64 << 20
_DROPPED_BYTES = 256 << 20
_ALIGN_BYTES = 4096
_FILE = "weights.bin"


@dataclass(frozen=True)
class Source:
    """`proto` is the whole model, its external data in `folder`. `weight_bytes` are those of its initializers."""

    proto: onnx.ModelProto
    folder: Path
    weight_bytes: int

    @property
    def lean(self) -> bool:
        return self.weight_bytes > LEAN_BYTES

    def session(
        self, extra_outputs: Iterable[str] = (), optimized: bool = False, pins: Collection[str] = ()
    ) -> ort.InferenceSession:
        """A session whose outputs are the model's own plus `extra_outputs`, float16 tensors `pins` pinned."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.proto)
        if pins:
            nodes = list(pinned(proto.graph.node, pins))
            del proto.graph.node[:]
            proto.graph.node.extend(nodes)
        own = {o.name for o in proto.graph.output}
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra_outputs if name not in own)
        return self.create(proto, optimized)

    def create(self, proto: onnx.ModelProto, optimized: bool, profile: str = "") -> ort.InferenceSession:
        """A session on a rewritten `proto` of this model."""
        return create(proto.SerializeToString(), optimized, self.folder, profile, self.lean)


@contextlib.contextmanager
def open_source(path: Path, root: Path | None = None) -> Iterator[Source]:
    """The model at `path`, for as long as the block runs. `root` is a bundle folder whose weights are mapped as well."""
    proto = read_proto(path)
    # Recorded shapes may be wrong, and ONNX Runtime plans memory by them; it infers what it needs itself.
    del proto.graph.value_info[:]
    total = sum(nbytes(t) for t in proto.graph.initializer)
    own = [t for t in proto.graph.initializer if is_external(t) and external_slice(t)[0] == path.name]
    elsewhere = {external_slice(t)[0] for t in proto.graph.initializer if is_external(t)} - {path.name}
    with contextlib.ExitStack() as stack:
        folder = path.parent.resolve()
        if own and (elsewhere or sum(map(nbytes, own)) < _INLINE_BYTES):
            _put_back(path, own)
        elif own:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgeengine-"))).resolve()
            _copy_aside(path, own, folder / _FILE)
        if total > _DROPPED_BYTES:
            files = [folder / name for name in elsewhere or {_FILE}]
            files += list(root.rglob("*.bin")) if root is not None else []
            stack.enter_context(dropping(files))
        yield Source(proto, folder, total)


def _put_back(path: Path, tensors: list[onnx.TensorProto]) -> None:
    for tensor in tensors:
        data = io.BytesIO()
        copy_bytes(path.parent, tensor, data)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = data.getvalue()


def _copy_aside(path: Path, tensors: list[onnx.TensorProto], target: Path) -> None:
    with target.open("wb") as out:
        for tensor in tensors:
            offset = -(-out.tell() // _ALIGN_BYTES) * _ALIGN_BYTES
            out.write(b"\0" * (offset - out.tell()))
            copy_bytes(path.parent, tensor, out)
            tensor.ClearField("external_data")
            for key, value in (("location", target.name), ("offset", str(offset)), ("length", str(nbytes(tensor)))):
                tensor.external_data.add(key=key, value=value)
