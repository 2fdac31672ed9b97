"""The error tree: who can mend it decides the class, and the class decides the exit code.

Every message is one line that says what is wrong, where, and what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EdgeEngineError(Exception):
    """Base of every error this package raises on purpose. `exit_code` is what the command line returns."""

    exit_code = 70


class UserError(EdgeEngineError, ValueError):
    """Your file, argument or input is wrong; the message says how to mend it."""

    exit_code = 2


class NotSupported(UserError):
    """An operator has no rule in one of our tables (costs, gradients, provider support).

    Attributes: `op`, `domain` ("" is the default ONNX domain), `opset`, `node` (name, or "#index" where unnamed).
    """

    def __init__(self, op: str, domain: str, opset: int, node: str, what: str = "rule"):
        self.op, self.domain, self.opset, self.node = op, domain, opset, node
        where = f"{domain}.{op}" if domain else op
        super().__init__(f"no {what} for operator {where} (opset {opset}) at node {node!r}: add a row to the op table")


class PlanInfeasible(EdgeEngineError):
    """No processor, or no schedule, can do what the workload asks."""

    exit_code = 3


class DeviceError(EdgeEngineError):
    """A processor or its provider failed, or is not what was asked for."""

    exit_code = 4


class DeviceLost(DeviceError):
    """The device is gone, or its driver must start anew: no later run of what is loaded there need be tried."""


class InternalError(EdgeEngineError):
    """Our defect. Please report it with the message."""

    exit_code = 70


def near(name: str, known: Iterable[str]) -> str:
    """The known names closest to `name`, as a question; the first few known ones where none is close."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"known are {', '.join(map(repr, names[:8]))}{', …' if len(names) > 8 else ''}"
