"""ONNX Runtime's CPU provider: one processor per core, and one over all cores.

Sessions are keyed by what is in them (file, threads, affinity), so core 0 and core 1 share one: with a single intra-op thread a
run executes on the calling, pinned thread. No session spins or brings threads beyond those of its processor.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Executable, Tensors
from edgeengine.errors import DeviceError, UserError
from edgeengine.spec import Placement, Processor, Step


class CpuProvider:
    name = "CPUExecutionProvider"

    def __init__(self) -> None:
        self._sessions: dict[tuple[Path, int, str], CpuExecutable] = {}
        # Concurrent session creation is not safe everywhere (onnxruntime#27089), and would fight for the cores anyway.
        self._lock = threading.Lock()

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        single = [
            Processor(name=f"cpu{c}", kind="cpu", provider=self.name, resources=(f"core{c}",), host_core=c, cores=(c,), threads=1)
            for c in cores
        ]
        if len(cores) < 2:
            return single
        everything = Processor(
            name="cpu-all", kind="cpu", provider=self.name, resources=tuple(f"core{c}" for c in cores),
            host_core=cores[0], cores=cores, threads=len(cores),
        )  # fmt: skip
        return [*single, everything]

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        if bundle is None:
            raise UserError(f"subgraph {step.subgraph!r} has latencies but no model: it can be simulated, not run")
        file = bundle.file(bundle.manifest.subgraph(step.subgraph))
        affinity = _affinity(processor)
        key = (file, processor.threads, affinity)
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = CpuExecutable(file, processor.threads, affinity)
            return self._sessions[key]

    def close(self) -> None:
        with self._lock:
            self._sessions.clear()


def _affinity(processor: Processor) -> str:
    """ONNX Runtime numbers cores from 1 and wants one entry per thread but the calling one."""
    if processor.threads == 1:
        return ""
    return ";".join(str(core + 1) for core in processor.cores if core != processor.host_core)


class CpuExecutable:
    """One session. Outputs are fresh arrays at every run, owned by whoever reads them."""

    def __init__(self, file: Path, threads: int, affinity: str):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        if affinity:
            options.add_session_config_entry("session.intra_op_thread_affinities", affinity)
        self._file = file
        self.placement: Placement | None = None
        try:
            self._session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as e:  # ONNX Runtime's errors have no common base below Exception
            raise DeviceError(f"{file}: ONNX Runtime cannot load it: {first_line(e)}") from e
        self._inputs = [i.name for i in self._session.get_inputs()]
        self._outputs = [o.name for o in self._session.get_outputs()]

    def run(self, feeds: Tensors) -> Tensors:
        try:
            outputs: list[np.ndarray] = self._session.run(self._outputs, {n: feeds[n] for n in self._inputs})
        except KeyError as e:
            raise DeviceError(f"{self._file.name}: input {e.args[0]!r} was not given") from e
        except Exception as e:
            raise DeviceError(f"{self._file.name}: run failed: {first_line(e)}") from e
        return dict(zip(self._outputs, outputs, strict=True))


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
