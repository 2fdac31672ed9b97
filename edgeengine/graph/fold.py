"""Evaluate what a model computes from constants alone. Executes nodes, so it runs in the child."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from edgeengine.errors import UserError
from edgeengine.graph.session import RUNTIME_ERRORS, create, first_line


class FoldJob(msgspec.Struct, frozen=True, tag="fold"):
    """`files` are models without inputs and with one boolean output each; `source` names the model in messages."""

    source: str
    files: tuple[str, ...]


def run_fold(job: FoldJob) -> tuple[bool, ...]:
    """The value of each. Raises UserError where ONNX Runtime refuses one."""
    values = []
    for file in job.files:
        try:
            (value,) = create(str(Path(file)), optimized=False).run(None, {})
        except RUNTIME_ERRORS as e:
            raise UserError(f"{job.source}: a condition that depends on fixed inputs cannot be evaluated: {first_line(e)}") from e
        values.append(bool(np.asarray(value).reshape(-1)[0]))
    return tuple(values)
