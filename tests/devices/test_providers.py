"""Providers: ONNX Runtime's CPU and the null one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import load_providers
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.devices.providers.null import NullProvider
from edgeengine.errors import DeviceError, UserError
from edgeengine.spec import Latency, Processor, Step
from edgeengine.testing import VirtualClock, check_provider
from tests.builders import MS, PROCESSORS, bare_bundle, processor

CORES = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (0,)
X = np.array([[1, -2, 3], [0, 5, -6]], np.float32)


def step(bundle: Bundle, processor: Processor) -> Step:
    whole = bundle.manifest.whole
    return Step(whole.name, whole.start, whole.stop, processor.name, Latency.constant(1))


# ---- CPU ----


def test_cpu_provider_keeps_the_contract(bundles: dict[str, Bundle]) -> None:
    check_provider(CpuProvider(), bundles["scale"], CORES)


def test_one_processor_per_core_and_one_for_all() -> None:
    found = CpuProvider().discover((1, 4, 6))
    assert [(p.name, p.resources, p.host_core, p.threads) for p in found] == [
        ("cpu1", ("core1",), 1, 1), ("cpu4", ("core4",), 4, 1), ("cpu6", ("core6",), 6, 1),
        ("cpu-all", ("core1", "core4", "core6"), 1, 3),
    ]  # fmt: skip
    assert all(found[-1].conflicts(p) for p in found[:-1])
    assert not found[0].conflicts(found[1])
    assert [p.name for p in CpuProvider().discover((3,))] == ["cpu3"]


def test_cores_share_a_session_and_all_of_them_have_another(bundles: dict[str, Bundle]) -> None:
    provider = CpuProvider()
    one, two, both = CpuProvider().discover((0, 1))
    made = [provider.load(bundles["scale"], step(bundles["scale"], p), p) for p in (one, two, both)]
    assert made[0] is made[1]
    assert made[0] is not made[2]
    provider.close()
    assert provider.load(bundles["scale"], step(bundles["scale"], one), one) is not made[0]


def test_outputs_belong_to_the_caller(bundles: dict[str, Bundle]) -> None:
    provider = CpuProvider()
    p = provider.discover((0,))[0]
    executable = provider.load(bundles["scale"], step(bundles["scale"], p), p)
    first = executable.run({"x": X})["y"]
    kept = first.copy()
    executable.run({"x": X * 7})
    np.testing.assert_array_equal(first, kept)


def test_what_cannot_run_is_an_error_of_one_line(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    provider = CpuProvider()
    p = provider.discover((0,))[0]
    executable = provider.load(bundles["scale"], step(bundles["scale"], p), p)
    faults = (
        ({}, UserError, "'x' was not given"),  # whoever calls is at fault, not the device
        ({"x": X[:, :2]}, DeviceError, "run failed"),
        ({"x": X.astype(int)}, DeviceError, "run failed"),
    )
    for feeds, kind, what in faults:
        with pytest.raises(kind, match=what) as e:
            executable.run(feeds)
        assert "\n" not in str(e.value)
    missing = bare_bundle("nothing", 1)
    with pytest.raises(DeviceError, match="cannot load it") as e:
        provider.load(missing, step(missing, p), p)
    assert "\n" not in str(e.value)


def test_task_without_model_cannot_be_loaded() -> None:
    p = CpuProvider().discover((0,))[0]
    with pytest.raises(UserError, match="simulated, not run"):
        CpuProvider().load(None, Step("s0_1", 0, 1, p.name, Latency.constant(1)), p)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_sessions_of_one_thread_bring_no_threads(bundles: dict[str, Bundle]) -> None:
    """In a process of its own: nothing else starts threads there."""
    code = f"""
        import os
        from pathlib import Path
        import numpy as np
        from edgeengine.bundle import open_bundle
        from edgeengine.devices.providers.cpu import CpuProvider
        from edgeengine.spec import Latency, Step
        bundle = open_bundle({str(bundles["scale"].path)!r})
        provider, count = CpuProvider(), lambda: len(os.listdir("/proc/self/task"))
        one, two, both = provider.discover(tuple(sorted(os.sched_getaffinity(0)) * 2)[:2])
        before = count()
        for s in bundle.manifest.subgraphs[:4]:
            loaded = provider.load(bundle, Step(s.name, s.start, s.stop, one.name, Latency.constant(1)), one)
        after = count()
        w = bundle.manifest.whole
        step = Step(w.name, w.start, w.stop, both.name, Latency.constant(1))
        provider.load(bundle, step, both)
        print(len(provider._sessions), after - before, count() - after)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["5", "0", "1"], found.stderr


def test_built_in_providers_are_fresh_instances() -> None:
    first, second = load_providers(), load_providers()
    assert CpuProvider.name in first
    assert first[CpuProvider.name] is not second[CpuProvider.name]


# ---- null ----


def test_null_provider_spends_the_median_on_the_clock_and_gives_zeros() -> None:
    clock = VirtualClock()
    provider = NullProvider(clock, PROCESSORS)
    assert provider.discover(()) == list(PROCESSORS)
    bundle = bare_bundle("m", 2, carry={"new": "state"})
    last = Step("s1_2", 1, 2, "a", Latency.of([1 * MS, 3 * MS, 50 * MS]))
    executable = provider.load(bundle, last, PROCESSORS[0])
    outputs = executable.run({})
    assert clock.now_ns() == 3 * MS
    assert {n: (a.shape, a.dtype, float(a[0])) for n, a in outputs.items()} == {
        n: ((1,), np.dtype("float32"), 0.0) for n in ("y", "new")
    }
    assert outputs["y"] is not executable.run({})["y"]


def test_null_provider_runs_tasks_without_a_model() -> None:
    clock = VirtualClock()
    step = Step("s0_1", 0, 1, "p", Latency.constant(0))
    assert NullProvider(clock).load(None, step, processor("p")).run({}) == {}
    assert clock.now_ns() == 1  # time never stands still


@pytest.mark.parametrize("value", ["no_such_package:Provider", "math:no_such_name", "math:pi", "math:sqrt"])
def test_provider_of_a_package_that_is_broken_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    points = [EntryPoint("other", value, "edgeengine.providers")]
    monkeypatch.setattr("edgeengine.devices.providers.entry_points", lambda group: points)
    with pytest.raises(UserError, match="provider 'other' cannot be made"):
        load_providers()


# ---- the check for third parties ----


class Wrong(CpuProvider):
    """Breaks the contract in one way."""

    def __init__(self, **wrong: Any):
        super().__init__()
        self._wrong = wrong

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        return self._wrong.get("processors", super().discover(cores))

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Any:
        inner, run = super().load(bundle, step, processor), self._wrong.get("run")

        class Run:
            def run(self, feeds: Any) -> Any:
                return run(inner.run(feeds)) if run else inner.run(feeds)

        return Run()


KEPT: dict[str, np.ndarray] = {}


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"processors": []}, "no processor"),
        ({"processors": [processor("p", usable=False)]}, "without a reason"),
        ({"processors": [Processor("p", "cpu", "x", ())]}, "no resource"),
        ({"run": lambda out: {"z": out["y"]}}, "outputs"),
        ({"run": lambda out: {"y": KEPT.setdefault("y", out["y"])}}, "same array"),
        ({"run": lambda out: {"y": KEPT.setdefault("viewed", out["y"])[:]}}, "same array"),
    ],
)
def test_check_finds_a_provider_that_breaks_the_contract(bundles: dict[str, Bundle], wrong: dict[str, Any], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        check_provider(Wrong(**wrong), bundles["scale"], (0,))
