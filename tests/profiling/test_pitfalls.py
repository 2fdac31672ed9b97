"""What providers do to those who measure them, and what the profile says of it: on a fake in virtual time, to the nanosecond."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.errors import DeviceError
from edgeengine.graph.loads import make_loads
from edgeengine.profiling import candidates_of, measure_back_to_back, measure_machine, reference_tensors
from edgeengine.profiling.corun import Running, measure_beside
from edgeengine.profiling.series import Series
from edgeengine.spec import ProfileRow
from edgeengine.testing import FakeGpu, Faults, VirtualClock

US, MS = 1_000, 1_000_000
X = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
LAUNCH, COMPUTE = 20 * US, 2 * MS
BYTES = 2 * X.nbytes  # in and out of every subgraph of "scale"
PLAIN = LAUNCH + COMPUTE + round(0.1 * BYTES)


def measure(bundle: Bundle, faults: Faults | None = None, only: str = "", **more: Any) -> list[ProfileRow]:
    clock = VirtualClock()
    gpu = FakeGpu(clock, compute_ns=COMPUTE, launch_ns=LAUNCH, faults=faults, **more)
    candidates = [c for c in candidates_of(bundle, gpu.discover((0,))) if only in c.subgraph.name]
    tensors = {bundle.hash: reference_tensors(bundle, {"x": X})}
    return measure_back_to_back(candidates, tensors, {gpu.name: gpu}, "here", budget_s=1, clock=clock)


@pytest.fixture
def scale(bundles: dict[str, Bundle]) -> Bundle:
    return bundles["scale"]


@pytest.fixture
def name(scale: Bundle) -> str:
    return scale.manifest.whole.name


def test_faultless_provider_is_measured_as_it_is(scale: Bundle) -> None:
    rows = measure(scale)
    assert {r.latency.p50_ns for r in rows} == {r.latency.max_ns for r in rows} == {PLAIN}
    assert {(r.verdict, r.ended, r.half_width, r.switch_ns) for r in rows} == {("ok", "width", 0.0, 0)}


def test_first_run_of_a_shape_is_kept_apart_from_the_steady_state(scale: Bundle) -> None:
    rows = measure(scale, Faults(first_shape_ns=500 * MS))
    assert {r.first_run_ns for r in rows} == {PLAIN + 500 * MS}
    assert {r.latency.max_ns for r in rows} == {PLAIN}


def test_two_processors_of_equal_speed_rank_equal_whatever_the_first_run_costs(scale: Bundle, name: str) -> None:
    rows = measure(scale, Faults(first_shape_ns=50 * MS), only=name, count=2)
    assert len(rows) == 2 and rows[0].latency == rows[1].latency


def test_candidates_take_turns_in_changing_order_and_never_after_themselves(
    scale: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    burst = Series.burst

    def told(self: Series, long: bool, switched: bool) -> None:
        assert switched
        ran.append(self.candidate.subgraph.name)
        burst(self, long, switched)

    monkeypatch.setattr(Series, "burst", told)
    assert {r.ended for r in measure(scale)} == {"width"}
    rounds = [tuple(ran[i : i + 6]) for i in range(0, len(ran), 6)]
    assert len(rounds) >= 6 and len(set(rounds)) > 3 and all(len(set(r)) == 6 for r in rounds)
    assert all(a != b for a, b in pairwise(ran))


def test_early_return_is_no_speed(scale: Bundle) -> None:
    rows = measure(scale, Faults(early_return=True))
    assert {r.verdict for r in rows} == {"wrong"} and not any(r.usable for r in rows)
    assert {r.reason for r in rows} == {"run() returns before its outputs are there"}


def test_outputs_that_are_promises_are_waited_for(scale: Bundle, name: str) -> None:
    rows = measure_with(scale, name, _Lazy)
    assert {(r.verdict, r.latency.p50_ns, r.latency.max_ns) for r in rows} == {("ok", PLAIN + 7 * MS, PLAIN + 7 * MS)}


def test_wrong_values_exclude_the_processor(scale: Bundle) -> None:
    rows = measure(scale, Faults(wrong=0.1))
    assert {r.verdict for r in rows} == {"wrong"} and not any(r.usable for r in rows)
    assert all("differs by" in r.reason and r.max_diff is not None and r.max_diff > 1e-3 for r in rows)


def test_values_that_go_wrong_later_are_seen(scale: Bundle, name: str) -> None:
    rows = measure_with(scale, name, _WrongLater)
    assert {(r.verdict, r.ended) for r in rows} == {("wrong", "width")}


def test_cost_of_changing_over_is_kept_apart(scale: Bundle, name: str) -> None:
    rows = measure(scale, Faults(switch_ns=300 * US))
    assert len(rows) > 1 and {r.latency.max_ns for r in rows} == {PLAIN}
    assert {r.switch_ns for r in rows} == {300 * US}
    assert [r.switch_ns for r in measure(scale, Faults(switch_ns=300 * US), only=name)] == [None]  # nothing to change from


def test_fallback_is_in_the_row_and_what_is_not_told_is_not_claimed(scale: Bundle, name: str) -> None:
    told = measure(scale, Faults(unsupported=frozenset({"Relu"})), only=name)[0]
    assert told.placement is not None and not told.placement.whole
    assert [(f.op, len(f.nodes)) for f in told.placement.fallback] == [("Relu", 1)]
    assert told.latency.p50_ns == PLAIN + MS + 2 * LAUNCH
    silent = measure(scale, Faults(unsupported=frozenset({"Relu"}), told=False), only=name)[0]
    assert silent.placement is None and silent.latency == told.latency


def test_device_that_is_lost_fails_its_rows_and_says_so(scale: Bundle) -> None:
    rows = measure(scale, Faults(lost_after=30))
    assert {(r.verdict, r.ended, r.latency.n) for r in rows} == {("failed", "failed", 0)}
    assert all("the device is lost" in r.reason for r in rows)


def test_failure_of_one_candidate_leaves_the_others(scale: Bundle, name: str) -> None:
    def refuse(gpu: FakeGpu, *arguments: Any) -> Any:
        if arguments[1].subgraph == name:
            raise MemoryError("cannot allocate 1 TB")
        return FakeGpu.load(gpu, *arguments)

    clock = VirtualClock()
    gpu = FakeGpu(clock, compute_ns=COMPUTE, launch_ns=LAUNCH)
    gpu.load = lambda *a: refuse(gpu, *a)  # type: ignore[method-assign]
    tensors = {scale.hash: reference_tensors(scale, {"x": X})}
    kept: list[ProfileRow] = []
    rows = measure_back_to_back(
        candidates_of(scale, gpu.discover((0,))), tensors, {gpu.name: gpu}, "here", budget_s=1, clock=clock, keep=kept.append
    )  # fmt: skip
    assert {r.subgraph: r.verdict for r in rows}.pop(name) == "failed"
    assert [r.reason for r in rows if r.subgraph == name] == ["cannot allocate 1 TB"]
    assert {r.verdict for r in rows if r.subgraph != name} == {"ok"}
    assert sorted(kept, key=repr) == sorted(rows, key=repr)


# ---- budgets, widths, interruptions ----


def test_noise_is_measured_until_the_median_is_known_or_time_is_up(scale: Bundle, name: str) -> None:
    few, many = (measure_with(scale, name, _Noisy, width=width, budget_s=20)[0] for width in (0.2, 0.04))
    assert few.ended == many.ended == "width"
    assert (few.half_width or 1) <= 0.2 and (many.half_width or 1) <= 0.04 and many.latency.n > 2 * few.latency.n
    stopped = measure_with(scale, name, _Noisy, width=0.001, budget_s=0.5)[0]
    assert stopped.ended == "budget" and (stopped.half_width or 0) > 0.001


def test_subgraphs_far_over_the_budget_are_measured_once(scale: Bundle) -> None:
    clock = VirtualClock()
    gpu = FakeGpu(clock, compute_ns=60_000 * MS)
    tensors = {scale.hash: reference_tensors(scale, {"x": X})}
    rows = measure_back_to_back(
        candidates_of(scale, gpu.discover((0,))), tensors, {gpu.name: gpu}, "here", budget_s=1, clock=clock
    )  # fmt: skip
    assert {(r.latency.n, r.half_width, r.ended, r.verdict) for r in rows} == {(1, None, "budget", "ok")}


def test_interrupted_measuring_keeps_what_is_known(scale: Bundle) -> None:
    clock = VirtualClock()
    gpu = FakeGpu(clock, compute_ns=COMPUTE)
    tensors = {scale.hash: reference_tensors(scale, {"x": X})}
    kept: list[ProfileRow] = []
    rounds = 0

    def progress(what: str, share: float) -> None:
        nonlocal rounds
        rounds += what == "measuring back to back"
        if rounds > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_back_to_back(
            candidates_of(scale, gpu.discover((0,))), tensors, {gpu.name: _with(gpu, _Noisy)}, "here",
            budget_s=60, width=1e-6, clock=clock, progress=progress, keep=kept.append,
        )  # fmt: skip
    assert {r.subgraph for r in kept} == {s.name for s in scale.manifest.subgraphs}
    assert {(r.ended, r.latency.n) for r in kept} == {("interrupted", 24)}


# ---- the machine ----


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Those that the CPU, which computes the fake's values, is done with soon."""
    made = make_loads(tmp_path_factory.mktemp("loads"))
    return {
        name: load for name, load in made.items() if load.amount <= 1 << 20 or "compute" in name or name == "neighbour:memory"
    }


def test_machine_rows_of_a_fake_gpu_are_what_it_was_given(loads: dict[str, Any]) -> None:
    clock = VirtualClock()
    gpu = FakeGpu(clock, compute_ns=COMPUTE, launch_ns=LAUNCH, count=2, faults=Faults(corun=1.5, switch_ns=300 * US))
    made = measure_machine(loads, gpu.discover((0,)), {gpu.name: gpu}, "here", budget_s=1, clock=clock)
    rows = {r.name: r for r in made.rows}
    assert made.failed == []
    assert rows["launch:gpu"].latency.p50_ns == LAUNCH + COMPUTE + 1
    assert rows["node:gpu"].latency.p50_ns == 0
    assert rows["compute:gpu"].amount == 512**3
    assert rows["transfer:host:gpu:1048576"].latency.p50_ns == pytest.approx(0.2 * (1 << 20), abs=2)
    assert rows["transfer:host:host:1048576"].amount == 1 << 20
    assert rows["switch:gpu1"].latency.p50_ns == 300 * US
    beside = {name: r.factor for name, r in rows.items() if name.startswith("beside:")}
    assert len(beside) == 4
    assert {round(f, 2) for f in beside.values()} == {1.5}


def test_lost_device_costs_its_own_rows_only(loads: dict[str, Any]) -> None:
    clock = VirtualClock()
    gpu = FakeGpu(clock, faults=Faults(lost_after=0))
    made = measure_machine(loads, gpu.discover((0,)), {gpu.name: gpu}, "here", budget_s=1, clock=clock)
    assert {r.name.split(":")[0] for r in made.rows} == {"transfer"}
    assert len(made.failed) == len(loads) - 2 and all("the device is lost" in f for f in made.failed)


def test_failure_of_the_neighbour_ends_measuring_beside_it(scale: Bundle) -> None:
    clock = VirtualClock()
    gpus = [FakeGpu(clock, faults=Faults(lost_after=lost)) for lost in (None, 40)]
    runs = []
    for gpu in gpus:
        (candidate,) = [c for c in candidates_of(scale, gpu.discover(())) if c.subgraph.name == scale.manifest.whole.name]
        runs.append(Running(candidate.processor, gpu.load(scale, candidate.step, candidate.processor), {"x": X}))
    with pytest.raises(DeviceError, match="the device is lost"):
        measure_beside(runs[0], runs[1], 10.0, clock)


# ---- other faults than the fake GPU has ----


class _Wrapped:
    """An executable that does something to the outputs or the time of another."""

    def __init__(self, inner: Any, clock: VirtualClock) -> None:
        self._inner, self._clock, self.placement = inner, clock, None
        self._runs, self._random = 0, np.random.default_rng(0)

    def run(self, feeds: Any) -> Any:
        self._runs += 1
        return self._inner.run(feeds)


class _Promise:
    def __init__(self, value: np.ndarray, clock: VirtualClock) -> None:
        self._value, self._clock, self._ready = value, clock, clock.now_ns() + 7 * MS

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        self._clock.sleep_until(self._ready, 0, 0)
        return self._value


class _Lazy(_Wrapped):
    def run(self, feeds: Any) -> Any:
        return {n: _Promise(v, self._clock) for n, v in super().run(feeds).items()}


class _WrongLater(_Wrapped):
    def run(self, feeds: Any) -> Any:
        return {n: v + (self._runs > 10) for n, v in super().run(feeds).items()}


class _Noisy(_Wrapped):
    def run(self, feeds: Any) -> Any:
        outputs = super().run(feeds)
        self._clock.sleep_until(self._clock.now_ns() + round(self._random.lognormal(0, 0.3) * 20 * MS), 0, 0)
        return outputs


def _with(gpu: FakeGpu, wrapper: type[_Wrapped]) -> Any:
    class Provider:
        name = gpu.name

        def load(self, *arguments: Any) -> Any:
            return wrapper(gpu.load(*arguments), gpu.clock)  # type: ignore[arg-type]

    return Provider()


def measure_with(
    bundle: Bundle, name: str, wrapper: type[_Wrapped], budget_s: float = 1, width: float = 0.02
) -> list[ProfileRow]:
    clock = VirtualClock()
    gpu = FakeGpu(clock, compute_ns=COMPUTE, launch_ns=LAUNCH)
    candidates = [c for c in candidates_of(bundle, gpu.discover((0,))) if c.subgraph.name == name]
    tensors = {bundle.hash: reference_tensors(bundle, {"x": X})}
    return measure_back_to_back(
        candidates, tensors, {gpu.name: _with(gpu, wrapper)}, "here", budget_s=budget_s, width=width, clock=clock
    )  # fmt: skip
