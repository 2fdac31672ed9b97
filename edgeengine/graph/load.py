"""Read an ONNX file: the graph into memory, the weights by reference.

Invariants of a loaded Model: the proto was read without external data, and large initializers inside the file became
references into it (`wire.py`), so a 20 GB model costs what its graph costs; every external location lies inside the
model's folder and is long enough; the proto is normalized (`normalize.py`), so `graph.input` lists only real inputs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from edgeengine.errors import UserError
from edgeengine.graph.normalize import normalize
from edgeengine.graph.tensors import external_slice, is_external, nbytes, tensors_in, tensors_of
from edgeengine.graph.wire import read_by_reference

ONNX_DOMAIN = ""

# First bytes of files that are given by mistake: (offset, bytes, what it is, what to do).
_OTHER_FILES = (
    (0, b"PK\x03\x04", "a zip archive, probably a PyTorch checkpoint", "export it to ONNX first"),
    (0, b"\x80\x02", "a Python pickle", "export it to ONNX first"),
    (0, b"\x89HDF", "an HDF5 file, probably Keras", "export it to ONNX first"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself", "fetch it with 'git lfs pull'"),
    (0, b"{", "a JSON file", "give the .onnx file"),
    (4, b"TFL3", "a TensorFlow Lite model", "convert it to ONNX first"),
    (4, b"ORTM", "an ORT-format model", "give the .onnx it was made from"),
)


@dataclass(frozen=True)
class Model:
    """An ONNX model as loaded.

    `opset` maps domain ("" is the default one) to version. `inputs` are the real inputs in order. `external` are the
    external data files beside the model's own, relative to its folder. `sha256` covers the file and all external data.
    """

    path: Path
    proto: onnx.ModelProto
    opset: dict[str, int]
    inputs: tuple[onnx.ValueInfoProto, ...]
    external: tuple[str, ...]
    sha256: str

    @property
    def folder(self) -> Path:
        return self.path.parent


def load_model(path: str | Path) -> Model:
    """Load the ONNX file at `path`; weights in external files stay there.

    Raises UserError for a missing, empty, truncated or foreign file, and for external data that is missing, too short
    or outside the model's folder.
    """
    file = Path(path)
    proto = read_proto(file)
    external = _check_external(file, proto)
    return Model(
        path=file,
        proto=proto,
        opset={_domain(o.domain): o.version for o in proto.opset_import},
        inputs=tuple(proto.graph.input),
        external=external,
        sha256=_hash(file, external),
    )


def read_proto(file: Path) -> onnx.ModelProto:
    """The proto in `file`, without external data and large weights, normalized. Raises UserError."""
    try:
        raw = read_by_reference(file, file.name)
    except FileNotFoundError as e:
        raise UserError(f"{file}: no such file; check the path of the model") from e
    except IsADirectoryError as e:
        raise UserError(f"{file}: is a folder; give the .onnx file in it") from e
    except OSError as e:
        raise UserError(f"{file}: cannot be read ({e.strerror}); check its permissions") from e
    if not raw:
        raise UserError(f"{file}: is empty; export or copy the model again")
    for offset, magic, what, remedy in _OTHER_FILES:
        if raw[offset : offset + len(magic)] == magic:
            raise UserError(f"{file}: is {what}, not an ONNX model; {remedy}")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(raw)
    except DecodeError as e:
        # Every ONNX file begins with the tag of ir_version, so one that does and still fails was cut off or damaged.
        what = "is truncated or damaged" if raw[:1] == b"\x08" else "is not an ONNX model"
        raise UserError(f"{file}: {what}; export or copy the model again") from e
    if proto.ir_version < 1 or not proto.HasField("graph"):
        raise UserError(f"{file}: is not an ONNX model (it holds no graph); export or copy the model again")
    if not proto.opset_import:
        raise UserError(f"{file}: names no opset, so it is truncated or not a model; export or copy it again")
    if not proto.graph.output:
        raise UserError(f"{file}: its graph has no output, so there is nothing to run; export the model again")
    normalize(proto)
    return proto


def _check_external(file: Path, proto: onnx.ModelProto) -> tuple[str, ...]:
    sizes: dict[str, int] = {}
    tensors = list(tensors_in(proto.graph))
    for function in proto.functions:
        for node in function.node:
            tensors.extend(tensors_of(node))
    for tensor in tensors:
        if not is_external(tensor):
            continue
        where = f"{file}: weight {tensor.name!r}"
        try:
            location, offset, length = external_slice(tensor)
            need = offset + max(length, nbytes(tensor))
        except ValueError as e:
            raise UserError(f"{where} has an external offset or length that is no number; export the model again") from e
        relative = PurePosixPath(location)
        if not location or relative.is_absolute() or ".." in relative.parts or "\\" in location:
            raise UserError(
                f"{where} points to {location!r}, outside the model's folder; "
                f"put the data file next to the model and export it with a relative location"
            )
        data = file.parent / relative
        if location not in sizes:
            if not data.is_file():
                raise UserError(f"{where} is in {location!r}, which is missing; copy that data file next to the model")
            sizes[location] = data.stat().st_size
        if offset < 0 or sizes[location] < need:
            raise UserError(
                f"{where} needs bytes {offset} to {need} of {location!r}, which has {sizes[location]}; "
                f"the data file is truncated or belongs to another model, copy it again"
            )
    return tuple(sorted(sizes.keys() - {file.name}))


def _hash(file: Path, external: tuple[str, ...]) -> str:
    total = hashlib.sha256()
    for name in (file.name, *external):
        with (file.parent / name).open("rb") as f:
            total.update(hashlib.file_digest(f, "sha256").digest())
    return total.hexdigest()


def _domain(name: str) -> str:
    return ONNX_DOMAIN if name == "ai.onnx" else name
