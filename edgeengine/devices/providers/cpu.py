"""ONNX Runtime's CPU provider: one processor per core, one per cluster of cores of one kind, and one over all cores.

Sessions are keyed by what is in them (file, threads, affinity), so core 0 and core 1 share one: with a single intra-op thread a
run executes on the calling, pinned thread. No session spins or brings threads beyond those of its processor.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort

from edgeengine.bundle import Bundle
from edgeengine.devices.cores import kinds_of
from edgeengine.devices.providers.base import Executable, subgraph_file
from edgeengine.devices.providers.ort import CPU, Session, create, placement_of, session_options
from edgeengine.spec import Processor, Step


class CpuProvider:
    name = CPU

    def __init__(self) -> None:
        self._sessions: dict[tuple[Path, int, str], Session] = {}
        # Concurrent session creation is not safe everywhere (onnxruntime#27089), and would fight for the cores anyway.
        self._lock = threading.Lock()

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        kinds = kinds_of(cores)
        kind = {core: str(i) if len(kinds) > 1 else "" for i, alike in enumerate(kinds) for core in alike}
        single = [self._over(f"cpu{c}", (c,), kind[c]) for c in cores]
        clusters = [self._over(_cluster(alike), alike, kind[alike[0]]) for alike in kinds if 1 < len(alike) < len(cores)]
        return [*single, *clusters, *([self._over("cpu-all", cores)] if len(cores) > 1 else [])]

    def _over(self, name: str, cores: tuple[int, ...], core_kind: str = "") -> Processor:
        return Processor(
            name=name, kind="cpu", provider=self.name, resources=tuple(f"core{c}" for c in cores),
            host_core=cores[0], cores=cores, threads=len(cores), core_kind=core_kind,
        )  # fmt: skip

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        file, affinity = subgraph_file(bundle, step), _affinity(processor)
        key = (file, processor.threads, affinity)
        with self._lock:
            if key not in self._sessions:
                session = create(file, _options(processor), [self.name])
                self._sessions[key] = Session(file, session, placement_of(session, self.name))
            return self._sessions[key]

    def load_version(self, bundle: Bundle, step: Step, processor: Processor, version: Mapping[str, np.ndarray]) -> Executable:
        """As `load`, the weights those of `version` where it has them. The subgraph must read every tensor of it."""
        file, options = subgraph_file(bundle, step), _options(processor)
        if version:
            # ONNX Runtime reads the arrays while the session is made; a private copy, since an OrtValue aliases its array.
            held = {n: np.array(a, order="C") for n, a in version.items()}
            options.add_external_initializers(list(held), [ort.OrtValue.ortvalue_from_numpy(a) for a in held.values()])
        with self._lock:
            session = create(file, options, [self.name])
        return Session(file, session, placement_of(session, self.name))

    def close(self) -> None:
        with self._lock:
            self._sessions.clear()


def _options(processor: Processor) -> ort.SessionOptions:
    affinity = _affinity(processor)
    return session_options(processor.threads, {"session.intra_op_thread_affinities": affinity} if affinity else {})


def _affinity(processor: Processor) -> str:
    """ONNX Runtime numbers cores from 1 and wants one entry per thread but the calling one."""
    if processor.threads == 1:
        return ""
    return ";".join(str(core + 1) for core in processor.cores if core != processor.host_core)


def _cluster(cores: tuple[int, ...]) -> str:
    """cpu4-7, or cpu0+2+5 where there are gaps."""
    whole = cores[-1] - cores[0] == len(cores) - 1
    return f"cpu{cores[0]}-{cores[-1]}" if whole else "cpu" + "+".join(map(str, cores))
