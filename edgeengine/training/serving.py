"""Serve a bundle with a version: the trained tensors replace the bundle's own by name, as constants, in a new session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.training.state import training_spec


def trained_names(bundle: Bundle) -> frozenset[str]:
    """The tensors that a version of this bundle may hold."""
    spec = training_spec(bundle)
    own = {p.name for p in spec.parameters if p.offset >= 0} | set(spec.merged) | {s.name for s in spec.statistics}
    return frozenset(own | ({spec.head.weight, spec.head.bias} if spec.head is not None else set()))


def inference_session(bundle: Bundle, version: Mapping[str, np.ndarray], threads: int = 1) -> ort.InferenceSession:
    """A session on the whole model of `bundle` whose weights are those of `version` where it has them.

    Raises UserError for a version with tensors that this bundle does not train.
    """
    expected = trained_names(bundle)
    if not version.keys() <= expected:
        raise UserError(f"{bundle.path}: the version holds {sorted(version)[:4]}, this bundle trains {sorted(expected)[:4]}")
    return session_of(bundle.file(bundle.manifest.whole), version, threads)


def session_of(file: Path, version: Mapping[str, np.ndarray], threads: int = 1) -> ort.InferenceSession:
    """A session on a graph of a bundle, on the CPU; it must read every tensor of `version`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # ONNX Runtime reads the arrays while the session is made; a private copy, since an OrtValue aliases its array.
    held = {n: np.array(a, order="C") for n, a in version.items()}
    if held:
        options.add_external_initializers(list(held), [ort.OrtValue.ortvalue_from_numpy(a) for a in held.values()])
    return ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
