"""The record of the benchmarks is of all of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import cuts, gpu_check
from edgeengine.clock import MonotonicClock
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.graph import child
from edgeengine.testing import FakeGpu, Faults


@pytest.mark.parametrize(("names", "kept"), [([], True), (["one"], False)])
def test_only_a_full_run_is_kept(
    names: list[str], kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks, "BENCHMARKS", {"one": list, "two": list})
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path / "results/latest.json")
    monkeypatch.setattr(sys, "argv", ["benchmarks", *names, "--json"])
    benchmarks.main()
    assert (tmp_path / "results/latest.json").is_file() == kept
    assert capsys.readouterr().out.startswith("{")


# ---- make gpu-check ----


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "SIZES", (4096,))
    monkeypatch.setattr(gpu_check, "SIDE", 8)
    for module in ("shapes", "build"):
        run_here = lambda job, values, result, what: child.execute(job, values)  # noqa: E731
        monkeypatch.setattr(f"edgeengine.graph.{module}.run_in_child", run_here)


def test_gpu_check_without_a_gpu_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main({CpuProvider.name: CpuProvider()}) == 4
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "no GPU is usable on this machine, so nothing was checked" in err


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(
    ("faults", "code", "said"),
    [
        (Faults(), 0, "outputs differ from the CPU's by"),
        (Faults(wrong=0.5), 4, "answers wrong"),
        (Faults(unsupported=frozenset({"Relu"})), 0, "Relu fell back: the fake GPU lacks it"),
        (Faults(lost_after=30), 4, "the device is lost"),
    ],
)
def test_gpu_check_on_a_gpu(faults: Faults, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    gpu = FakeGpu(MonotonicClock(), compute_ns=10_000, faults=replace(faults, fallback_ns=0))
    assert gpu_check.main({CpuProvider.name: CpuProvider(), gpu.name: gpu}) == code
    assert said in "".join(capsys.readouterr())


def test_the_overhead_of_cuts_counts_noise_as_noise() -> None:
    figures = [
        cuts.Figures("a", 1.0, 1, [1.0, 1.01, 1.02], [1.04, 1.1, 1.2], [1.4, 1.4, 1.4]),
        cuts.Figures("b", 1.0, 1, [0.9, 0.9, 0.9], [0.98, 0.97, 0.99], [1.0, 1.1, 1.2]),
    ]
    found = cuts.summary(figures)
    assert found["chosen_worst"] == 1.01
    assert found["ours_overhead"] == pytest.approx((0.1 * cuts.NOISE) ** 0.5)  # faster than the whole counts as no slower
    assert found["naive_overhead"] == pytest.approx((0.4 * 0.1) ** 0.5)
    assert found["ours_ratio"] == pytest.approx((1.1 * 0.98) ** 0.5)  # here it counts
