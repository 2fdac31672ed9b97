"""Measuring: what is run, how often, and under which key the rows are kept. Never how long it takes."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.devices.threads import run_pinned
from edgeengine.profiling import (
    BACK_TO_BACK,
    candidates_of,
    measure_back_to_back,
    measure_chains,
    reference_tensors,
)
from edgeengine.spec import Processor
from tests.builders import processor

X = np.array([[1, -2, 3], [0, 5, -6]], np.float32)


@pytest.fixture
def provider() -> CpuProvider:
    return CpuProvider()


@pytest.fixture
def core(provider: CpuProvider) -> Processor:
    return provider.discover(tuple(sorted(os.sched_getaffinity(0))))[0]


@pytest.fixture
def scale(bundles: dict[str, Bundle]) -> Bundle:
    return bundles["scale"]


def test_boundary_tensors_are_those_of_the_real_chain(scale: Bundle, by_hand: Any) -> None:
    tensors = reference_tensors(scale, {"x": X})
    needed = {t.name for s in scale.manifest.subgraphs for t in (*s.inputs, *s.outputs)}
    assert needed <= tensors.keys()
    np.testing.assert_allclose(tensors["y"], by_hand("scale", x=X)["y"], rtol=1e-6)


def test_each_candidate_has_a_row_with_its_key(scale: Bundle, provider: CpuProvider, core: Processor) -> None:
    candidates = candidates_of(scale, [core])
    tensors = {scale.hash: reference_tensors(scale, {"x": X})}
    told: list[tuple[str, float]] = []
    rows = measure_back_to_back(
        candidates, tensors, {provider.name: provider}, "here",
        budget_s=60, width=0.9, progress=lambda what, share: told.append((what, share)),
    )  # fmt: skip
    assert [(r.bundle, r.device, r.processor, r.subgraph) for r in rows] == [
        (scale.hash, "here", core.name, c.subgraph.name) for c in candidates
    ]
    whole = next(r for r in rows if r.subgraph == scale.manifest.whole.name)
    assert (whole.shapes, whole.condition) == ("x=2x3", BACK_TO_BACK)
    assert min(r.latency.n for r in rows) >= 18
    assert {r.verdict for r in rows} == {"ok"} and max(r.max_diff or 0.0 for r in rows) < 1e-6
    assert {r.ended for r in rows} <= {"width", "budget"} and all(r.half_width is not None for r in rows)
    assert {r.cores for r in rows} == {core.cores}
    assert all(r.latency.min_ns > 0 and r.create_ns > 0 and r.first_run_ns > 0 for r in rows)
    assert set(whole.versions) == {"onnxruntime", "numpy"}
    assert [what for what, _ in told[: len(candidates)]] == [
        f"loading scale {c.subgraph.name} on {core.name}" for c in candidates
    ]
    shares = [share for what, share in told if what == "measuring back to back"]
    assert shares and shares == sorted(shares) and shares[-1] <= 1


def test_processors_that_share_a_session_share_what_it_cost(scale: Bundle, provider: CpuProvider, core: Processor) -> None:
    twin = msgspec.structs.replace(core, name="twin")
    tensors = {scale.hash: reference_tensors(scale, {"x": X})}
    rows = measure_back_to_back(
        candidates_of(scale, [core, twin]), tensors, {provider.name: provider}, "here", budget_s=0.01
    )  # fmt: skip
    cost = {(r.subgraph, r.processor): (r.create_ns, r.first_run_ns, r.resident_bytes) for r in rows}
    assert len(cost) == 2 * len(scale.manifest.subgraphs)
    assert all(cost[s.name, core.name] == cost[s.name, "twin"] for s in scale.manifest.subgraphs)


def test_unusable_processors_are_no_candidates(scale: Bundle, core: Processor) -> None:
    broken = Processor("x", "npu", "x", ("npu",), usable=False, reason="gone")
    assert {c.processor.name for c in candidates_of(scale, [core, broken])} == {core.name}


def test_each_chain_is_measured_whole(scale: Bundle, provider: CpuProvider, core: Processor) -> None:
    candidates = candidates_of(scale, [core])
    finest = [c for c in candidates if c.subgraph.stop == c.subgraph.start + 1]
    whole = [c for c in candidates if c.subgraph.name == scale.manifest.whole.name]
    measured = measure_chains([whole, finest], {"x": X}, {provider.name: provider}, budget_s=0.01)
    assert len(measured) == 2 and measured[0].n == measured[1].n >= 8


def test_measuring_code_runs_on_a_thread_pinned_to_the_core(core: Processor) -> None:
    mine, seen = os.sched_getaffinity(0), []
    run_pinned(core, lambda: seen.append((os.sched_getaffinity(0), threading.current_thread())))
    assert seen[0][0] == {core.host_core}
    assert seen[0][1] is not threading.current_thread()
    assert os.sched_getaffinity(0) == mine


def test_error_in_measuring_code_comes_through(core: Processor) -> None:
    with pytest.raises(ZeroDivisionError):
        run_pinned(core, lambda: [1 // 0][0])


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this platform cannot signal a thread")
def test_interrupt_waits_for_the_run_that_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread left behind inside the runtime would abort the process at its end, in place of exit code 130."""
    seen, left, stayed = threading.Event(), threading.Event(), []

    def interrupted(*_: object) -> None:
        seen.set()
        raise KeyboardInterrupt

    def body() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert seen.wait(10)
        stayed.append(not left.wait(0.1))

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_pinned(processor("cpu"), body)
        left.set()
    finally:
        signal.signal(signal.SIGINT, before)
    assert stayed == [True]
