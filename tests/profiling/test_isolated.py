"""Sessions in processes of their own: what they add to memory, and that a crash is only theirs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.errors import DeviceError
from edgeengine.graph.loads import make_loads
from edgeengine.profiling import Candidate, candidates_of, measure_back_to_back, reference_tensors
from edgeengine.profiling import isolated as module
from edgeengine.profiling.isolated import Isolated, isolated, resident_bytes
from edgeengine.spec import Processor
from edgeengine.testing import FakeGpu, VirtualClock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
CPUS = CpuProvider().discover(tuple(sorted(os.sched_getaffinity(0))))
MIB = 1 << 20


def test_memory_is_that_of_the_session_whatever_came_before(tmp_path: Path) -> None:
    """32 MiB of weights, which ONNX Runtime packs: once or twice as much, and the same in any order."""
    loads = make_loads(tmp_path)
    bundles = [loads["launch"].bundle, loads[f"memory:{32 * MIB}"].bundle, loads["launch"].bundle]
    tensors = {b.hash: {"x": np.ones(b.manifest.shapes["x"], np.float32)} for b in bundles}
    small, large, again = (a.resident_bytes for a in _each(bundles, tensors))
    assert small is not None and large is not None and again is not None
    assert 30 * MIB < large - small < 70 * MIB
    assert small < 12 * MIB and abs(small - again) < 2 * MIB


def _each(bundles: list[Bundle], tensors: dict[str, Any]) -> list[Isolated]:
    """Under different names, or the same session would be made once."""
    made = [Candidate(Bundle(b.path, f"{i}{b.hash}", b.manifest), b.manifest.whole, CPUS[0]) for i, b in enumerate(bundles)]
    return isolated(made, {c.bundle.hash: tensors[c.bundle.hash[1:]] for c in made})


def test_same_session_is_made_once_for_cores_that_share_it(bundles: dict[str, Bundle]) -> None:
    scale = bundles["scale"]
    twins = [Processor(f"cpu{i}", "cpu", CPUS[0].provider, (f"core{i}",), host_core=0, cores=(0,)) for i in range(3)]
    found = isolated(candidates_of(scale, twins), {scale.hash: reference_tensors(scale, {"x": np.ones((2, 3), np.float32)})})
    of_each = {id(found[i]) for i in range(3)}
    assert len(found) == 3 * len(scale.manifest.subgraphs) and len(of_each) == 1
    assert all(f.resident_bytes is not None and not f.reason for f in found)


def test_strings_and_the_reason_of_a_failure_go_through(bundles: dict[str, Bundle]) -> None:
    scale = bundles["scale"]
    whole = Candidate(scale, scale.manifest.whole, CPUS[0])
    (found,) = isolated([whole], {scale.hash: {"words": np.array(["a", "bc"], object), "x": np.ones((3, 3), np.float32)}})
    assert found.resident_bytes is None and "run failed" in found.reason


class _Provider:
    """Does something drastic when it loads."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def load(self, *_: Any) -> Any:
        self._act()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "the process that ran it was ended by SIGTERM"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "the process that ran it was ended by SIGKILL"),
        (lambda: os._exit(3), "the process that ran it ended with 3"),
    ],
)
def test_crash_ends_the_fork_only(
    act: Callable[[], Any], reason: str, bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    scale = bundles["scale"]
    monkeypatch.setattr(module, "load_providers", lambda: {CPUS[0].provider: _Provider(act)})
    assert module._forked(Candidate(scale, scale.manifest.whole, CPUS[0]), {}) == Isolated(None, reason)


def test_out_of_memory_is_the_reason_of_its_row(bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted() -> None:
        raise MemoryError

    scale = bundles["scale"]
    monkeypatch.setattr(module, "load_providers", lambda: {CPUS[0].provider: _Provider(exhausted)})
    assert module._loaded(Candidate(scale, scale.manifest.whole, CPUS[0]), {}).reason == "MemoryError"


def test_what_crashes_in_isolation_is_not_loaded_here(bundles: dict[str, Bundle], monkeypatch: pytest.MonkeyPatch) -> None:
    def isolated_here(candidates: Any, _tensors: Any) -> list[Isolated]:
        return [Isolated(None, "it crashed") if i == 0 else Isolated(5 * MIB) for i, _ in enumerate(candidates)]

    scale, clock = bundles["scale"], VirtualClock()
    gpu = FakeGpu(clock)
    monkeypatch.setattr("edgeengine.profiling.back_to_back.isolated", isolated_here)
    tensors = {scale.hash: reference_tensors(scale, {"x": np.ones((2, 3), np.float32)})}
    candidates = candidates_of(scale, gpu.discover((0,)))
    rows = measure_back_to_back(candidates, tensors, {gpu.name: gpu}, "here", budget_s=1, isolate=True, clock=clock)
    assert (rows[0].verdict, rows[0].reason, rows[0].resident_bytes) == ("failed", "it crashed", None)
    assert {(r.verdict, r.resident_bytes) for r in rows[1:]} == {("ok", 5 * MIB)}


def test_program_code_is_not_counted(tmp_path: Path) -> None:
    smaps = tmp_path / "smaps"
    smaps.write_text(
        "55d0c0000000-55d0c0010000 r-xp 00000000 08:01 1 /usr/bin/python3\nSize: 64 kB\nRss: 64 kB\n"
        "7f0000000000-7f0000100000 r--p 00000000 08:01 2 /usr/lib/libonnxruntime.so.1\nRss: 1000 kB\n"
        "7f0000200000-7f0000300000 rw-p 00000000 00:00 0\nRss: 300 kB\nPss: 300 kB\n"
        "7f0000400000-7f0000500000 r--p 00000000 08:01 3 /models/weights/base.bin\nRss: 20 kB\n"
    )
    assert resident_bytes(smaps) == 320 * 1024
    assert resident_bytes(tmp_path / "absent") is None


def test_job_that_cannot_be_done_at_all_is_our_defect(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    gone = Bundle(tmp_path / "gone.edge", "h", bundles["scale"].manifest)
    with pytest.raises(Exception, match="in isolation ended with 1: FileNotFoundError"):
        isolated([Candidate(gone, gone.manifest.whole, CPUS[0])], {"h": {}})
    with pytest.raises(DeviceError, match="the reference cannot be computed"):
        reference_tensors(gone, {"x": np.ones((2, 3), np.float32)})
