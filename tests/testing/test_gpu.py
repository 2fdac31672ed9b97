"""The fake GPU: honest by default, and each fault is what it says."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Executable
from edgeengine.errors import DeviceError
from edgeengine.spec import Fallback, Latency, Placement, Step
from edgeengine.testing import FakeGpu, Faults, VirtualClock, check_provider
from tests.builders import MS

CORES = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (0,)
X = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
LAUNCH, COMPUTE = 20_000, MS
PLAIN = LAUNCH + COMPUTE + 5  # 24 bytes in, 24 out, a tenth of a nanosecond each
ByHand = Callable[..., dict[str, np.ndarray]]


def loaded(bundle: Bundle, name: str = "", processor: int = 0, **options: object) -> tuple[FakeGpu, Executable]:
    gpu = FakeGpu(VirtualClock(), **options)  # type: ignore[arg-type]
    return gpu, load(gpu, bundle, name, processor)


def load(gpu: FakeGpu, bundle: Bundle, name: str = "", processor: int = 0) -> Executable:
    s = bundle.manifest.subgraph(name) if name else bundle.manifest.whole
    p = gpu.discover((0, 1))[processor]
    return gpu.load(bundle, Step(s.name, s.start, s.stop, p.name, Latency.constant(1)), p)


def test_it_keeps_the_contract(bundles: dict[str, Bundle]) -> None:
    check_provider(FakeGpu(VirtualClock(), count=2), bundles["scale"], CORES)


def test_a_run_costs_launch_copies_and_compute_and_gives_the_values(bundles: dict[str, Bundle], by_hand: ByHand) -> None:
    gpu, executable = loaded(bundles["scale"])
    y = executable.run({"x": X})["y"]
    np.testing.assert_array_equal(y, by_hand("scale", x=X)["y"])
    assert gpu.clock.now_ns() == PLAIN
    assert executable.placement == Placement(gpu.name, {gpu.name: bundles["scale"].manifest.whole.nodes})
    assert [(p.kind, p.resources, p.host_core) for p in gpu.discover((0, 1))] == [("gpu", ("gpu",), 1)]


def test_an_early_return_hands_out_what_is_not_there_yet(bundles: dict[str, Bundle], by_hand: ByHand) -> None:
    gpu, executable = loaded(bundles["scale"], faults=Faults(early_return=True))
    first = executable.run({"x": X})["y"]
    assert gpu.clock.now_ns() == LAUNCH and np.isnan(first).all()
    gpu.clock.sleep_until(PLAIN, 0, 0)
    assert np.isnan(executable.run({"x": X})["y"]).all()
    np.testing.assert_array_equal(first, by_hand("scale", x=X)["y"])


def test_wrong_values_are_wrong_by_as_much_as_asked(bundles: dict[str, Bundle], by_hand: ByHand) -> None:
    _, executable = loaded(bundles["scale"], faults=Faults(wrong=0.1))
    off = executable.run({"x": X})["y"] - by_hand("scale", x=X)["y"]
    assert off.flat[0] == pytest.approx(0.1) and not off.flat[1:].any()


def test_only_the_first_run_of_a_shape_is_slow(bundles: dict[str, Bundle]) -> None:
    gpu, executable = loaded(bundles["scale"], faults=Faults(first_shape_ns=50 * MS))
    took = []
    for _ in range(3):
        begun = gpu.clock.now_ns()
        executable.run({"x": X})
        took.append(gpu.clock.now_ns() - begun)
    assert took == [PLAIN + 50 * MS, PLAIN, PLAIN]


def test_what_it_lacks_runs_on_the_cpu_and_is_told_or_not(bundles: dict[str, Bundle]) -> None:
    faults = Faults(unsupported=frozenset({"Tanh", "Exp"}), fallback_ns=3 * MS)
    gpu, executable = loaded(bundles["scale"], faults=faults)
    executable.run({"x": X})
    assert gpu.clock.now_ns() == PLAIN + 3 * MS + 2 * LAUNCH
    assert executable.placement is not None and not executable.placement.whole
    assert executable.placement.nodes == {gpu.name: 3, "CPUExecutionProvider": 1}
    assert executable.placement.fallback == (
        Fallback("Tanh", ("Tanh #0",), "CPUExecutionProvider", "the fake GPU lacks it"),
    )  # fmt: skip
    assert executable.placement.copies == 2
    assert loaded(bundles["scale"], faults=Faults(unsupported=frozenset({"Tanh"}), told=False))[1].placement is None


def test_switching_between_subgraphs_costs(bundles: dict[str, Bundle]) -> None:
    gpu = FakeGpu(VirtualClock(), faults=Faults(switch_ns=7 * MS))
    parts = [s.name for s in bundles["scale"].manifest.subgraphs if s.stop == s.start + 1]
    first, second = (load(gpu, bundles["scale"], n) for n in parts[:2])
    out = first.run({"x": X})
    for _ in range(2):
        first.run({"x": X})
    assert gpu.clock.now_ns() < 4 * MS
    second.run(out)
    assert gpu.clock.now_ns() > 4 * MS + 7 * MS


def test_two_at_once_slow_each_other(bundles: dict[str, Bundle]) -> None:
    clock = VirtualClock()
    gpu = FakeGpu(clock, count=2, faults=Faults(corun=1.5))
    one, two = load(gpu, bundles["scale"]), load(gpu, bundles["scale"], processor=1)
    took: list[int] = []

    def loop(executable: Executable) -> None:
        for _ in range(3):
            begun = clock.now_ns()
            executable.run({"x": X})
            took.append(clock.now_ns() - begun)

    one.run({"x": X})
    assert clock.now_ns() == PLAIN
    for thread in [clock.start_thread(lambda e=e: loop(e), "co-run") for e in (one, two)]:  # type: ignore[misc]
        clock.join(thread)
    assert sorted(took)[:1] == [PLAIN] and sorted(took)[-1] == int(1.5 * PLAIN) and sorted(took)[1] > PLAIN


def test_a_lost_device_is_a_device_error(bundles: dict[str, Bundle]) -> None:
    _, executable = loaded(bundles["scale"], faults=Faults(lost_after=1))
    executable.run({"x": X})
    with pytest.raises(DeviceError, match="lost"):
        executable.run({"x": X})
