"""Create a session in a process of its own: a driver that crashes or hangs takes this one with it, and nothing else.

    python -m edgeengine.devices.providers.child JOB.json

Writes verdict.json beside the job, and context.onnx where the provider compiles ahead. See compiled.py for who asks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import onnxruntime as ort

from edgeengine.devices.providers.ort import CPU, create, placement_of, session_options
from edgeengine.devices.providers.target import Target, ask, hardware, register
from edgeengine.errors import DeviceError
from edgeengine.spec import Placement

VERDICT, CONTEXT = "verdict.json", "context.onnx"
ERROR = 3  # ONNX Runtime's severities: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal


class Job(msgspec.Struct, frozen=True):
    """`shapes` are the concrete shapes of the model's inputs."""

    model: str
    shapes: dict[str, tuple[int, ...]]
    target: Target


class Verdict(msgspec.Struct, frozen=True):
    """What came of a job. `dims` are the free dimensions that were fixed, `devices` how many of the kind there are.

    `error` is "" when there is a session; `at_s` is when a failure was seen (seconds since the epoch).
    """

    placement: Placement | None = None
    dims: dict[str, int] = {}
    devices: int = 0
    emulated: bool = False
    error: str = ""
    at_s: float = 0.0


def execute(job: Job, folder: Path) -> Verdict:
    """Create the session that `job` asks for, in this process."""
    target, model = job.target, Path(job.model)
    lines: list[tuple[int, str]] = []
    ort.set_default_logger_callback(lambda severity, _category, _log, _where, text: lines.append((severity, text)), 0)
    try:
        register(target)
        devices, emulated = hardware(target)
        dims = _free_dimensions(model, job.shapes) if target.static else {}
        entries = dict(target.entries)
        if target.context:
            entries |= {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": str(folder / CONTEXT)}
        options = session_options(entries=entries, dims=dims, severity=0)
        session = create(model, options, ask(target, options))
        placement = placement_of(session, target.provider, [text for _, text in lines])
    except DeviceError as e:
        return Verdict(error=_cause(lines) or str(e))
    error = "" if target.provider in placement.nodes else _cause(lines)
    if not error and target.provider not in session.get_providers():
        error = f"ONNX Runtime cannot start {target.provider}: its libraries or its driver are missing"
    return Verdict(placement, dims, max(len(devices), int(not target.library)), emulated, error)


def _cause(lines: list[tuple[int, str]]) -> str:
    """The first error that ONNX Runtime or the provider logged."""
    return next((text.strip().splitlines()[0] for severity, text in lines if severity >= ERROR and text.strip()), "")


def _free_dimensions(model: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Name -> size of every named dimension of the inputs."""
    options = session_options()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    sizes = {}
    for given in create(model, options, [CPU]).get_inputs():
        for dim, size in zip(given.shape, shapes.get(given.name, ()), strict=False):
            if isinstance(dim, str):
                sizes[dim] = size
    return sizes


def main(job: Path) -> None:
    verdict = execute(msgspec.json.decode(job.read_bytes(), type=Job), job.parent)
    (job.parent / VERDICT).write_bytes(msgspec.json.encode(verdict))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
