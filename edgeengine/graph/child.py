"""The child process that executes other people's models: `python -m edgeengine.graph.child JOB`.

A crash inside ONNX Runtime ends the child, not the caller, and its memory goes with it. JOB is a folder holding
job.json (one of the job types, tagged) and values.npz (input values); the child leaves result.json there: {"ok": …} or
{"error": …}.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

import edgeengine
from edgeengine.errors import InternalError, UserError
from edgeengine.graph.fold import FoldJob, run_fold
from edgeengine.graph.probe import ProbeJob, ProbeResult, run_probe
from edgeengine.graph.verify import VerifyJob, run_verify
from edgeengine.spec.bundle import Exactness

Job = ProbeJob | VerifyJob | FoldJob
_Result = TypeVar("_Result")
_ERRORS = {"UserError": UserError, "InternalError": InternalError}


class _Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    message: str = ""


def run_in_child(job: Job, values: Mapping[str, np.ndarray], result: type[_Result], what: str) -> _Result:
    """Run `job` in a fresh process and return its result. `what` names the model in messages.

    Raises what the job raises (UserError, InternalError), and UserError when the process dies.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="edgeengine-") as name:
            folder = Path(name)
            (folder / "job.json").write_bytes(msgspec.json.encode(job))
            # Strings go as fixed-width text: numpy would pickle objects.
            arrays = {f"v{i}": a.astype(str) if a.dtype == object else a for i, a in enumerate(values.values())}
            np.savez(folder / "values.npz", names=np.array(list(values), dtype=str), **arrays)  # type: ignore[arg-type]
            root = str(Path(edgeengine.__file__).parents[1])
            path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
            done = subprocess.run(
                [sys.executable, "-m", "edgeengine.graph.child", name],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            file = folder / "result.json"
            if not file.is_file():
                raise UserError(f"{what}: the process that runs the model {_death(done)}; it needs a smaller or mended model")
            outcome = msgspec.json.decode(file.read_bytes(), type=_Outcome)
    except OSError as e:
        raise UserError(
            f"{tempfile.gettempdir()}: cannot be written ({e}); free some space or set TMPDIR to another place"
        ) from e
    if outcome.error:
        raise _ERRORS[outcome.error](outcome.message)
    return msgspec.json.decode(outcome.ok, type=result)


def execute(job: Job, values: Mapping[str, np.ndarray]) -> ProbeResult | Exactness | tuple[bool, ...]:
    """Run a job in this process."""
    if isinstance(job, FoldJob):
        return run_fold(job)
    return run_probe(job, values) if isinstance(job, ProbeJob) else run_verify(job, values)


def main(folder: Path) -> None:
    """Run the job in `folder` and write its result there."""
    job = msgspec.json.decode((folder / "job.json").read_bytes(), type=Job)
    with np.load(folder / "values.npz", allow_pickle=False) as file:
        arrays = [file[f"v{i}"] for i in range(len(file["names"]))]
        values = dict(zip(file["names"].tolist(), arrays, strict=True))
    values = {n: a.astype(object) if a.dtype.kind == "U" else a for n, a in values.items()}
    try:
        outcome = _Outcome(ok=msgspec.Raw(msgspec.json.encode(execute(job, values))))
    except (UserError, InternalError) as e:
        outcome = _Outcome(error="UserError" if isinstance(e, UserError) else "InternalError", message=str(e))
    temporary = folder / "result.tmp"
    temporary.write_bytes(msgspec.json.encode(outcome))
    temporary.replace(folder / "result.json")


def _death(done: subprocess.CompletedProcess[bytes]) -> str:
    """In words: died of a signal, or failed with the last line it wrote."""
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        return f"died of {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"failed: {lines[-1] if lines else f'exit code {done.returncode}'}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
