"""The manifest of a bundle, from what was cut and how exact it is."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import onnx
import onnxruntime

import edgeengine
from edgeengine.bundle import WEIGHTS, sha256
from edgeengine.graph.candidates import Candidates
from edgeengine.graph.load import Model
from edgeengine.graph.shapes import output_specs
from edgeengine.spec.bundle import SCHEMA, Exactness, Manifest
from edgeengine.spec.training import TrainingSpec

_UNVERIFIED = Exactness(0, False, 0.0, 0.0, 0.0)


def manifest_of(
    original: Model,
    candidates: Candidates,
    exactness: Exactness | None = None,
    fixed: Mapping[str, np.ndarray] | None = None,
    preprocessing: Mapping[str, object] | None = None,
    training: TrainingSpec | None = None,
) -> Manifest:
    """The manifest of `candidates`, cut from `original` (as read, before inputs were fixed).

    Without `exactness` it is a trial's, to be measured and thrown away: its files have no hashes.
    """
    seen, subgraphs = candidates.seen, candidates.subgraphs
    added = training.files if training is not None else ()
    files = sorted({s.file for s in subgraphs} | {WEIGHTS, *added}) if exactness is not None else ()
    return Manifest(
        schema=SCHEMA,
        name=original.path.stem,
        source=original.path.name,
        source_sha256=original.sha256,
        tools={
            "edgeengine": edgeengine.__version__,
            "numpy": np.__version__,
            "onnx": onnx.__version__,
            "onnxruntime": onnxruntime.__version__,
        },
        ir_version=original.proto.ir_version,
        opset=original.opset,
        inputs=seen.tensors.inputs,
        outputs=output_specs(seen.flow, seen.tensors),
        shapes=seen.tensors.fixed,
        segments=candidates.segments,
        subgraphs=subgraphs,
        files={f: sha256(candidates.folder / f) for f in files},
        exactness=exactness or _UNVERIFIED,
        preprocessing=dict(preprocessing or {}),
        fixed={name: np.array2string(value, threshold=8) for name, value in (fixed or {}).items()},
        training=training,
    )


def encode(manifest: Manifest) -> bytes:
    """The bytes of manifest.json."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
