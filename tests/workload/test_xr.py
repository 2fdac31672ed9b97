"""XRBench: its published log rescored, its scenarios, and what any work-conserving policy scores on its latencies."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.planning import plan_from_latencies
from edgeengine.planning.objectives import xr_frames
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.workload import Workload, load_workload
from edgeengine.workload.xr import DEVICES, FULL_NAMES, MEGA_MACS, RUN_MS, SCENARIOS, workload_of, xr_workload
from edgeengine.workload.xr_score import Frame, xr_score
from tests.builders import MS

LOG = Path(__file__).parents[1] / "data" / "xrbench_vr_gaming_single_4k_ws.csv"
GOLDEN_MS = {"ES": 1.503136, "GE": 4.222037, "HT": 8.561680}
GOLDEN_MJ = {"ES": 35.329716, "GE": 34.922195, "HT": 207.433304}


def logged() -> list[Frame]:
    rows = csv.DictReader(LOG.read_text().splitlines())
    return [
        Frame(r["Model Name"], float(r["Deadline Time (ms)"]), float(r["Completion Time (ms)"]), float(r["Energy (mJ)"]))
        for r in rows
    ]


def golden(factor: float = 1.0, segments: int = 1) -> Workload:
    latency = {m: {"npu": ms * factor} for m, ms in GOLDEN_MS.items()}
    return workload_of("vr_gaming", latency, {m: {"npu": mj} for m, mj in GOLDEN_MJ.items()}, segments=segments)


def strict(workload: Workload, policy: str) -> float:
    done = simulate(workload, plan_from_latencies(workload), make_policy(policy), Median(), stop_ns=RUN_MS * MS)
    return xr_score(xr_frames(done.jobs), strict=True)


def test_published_log_scores_what_xrbench_published() -> None:
    assert xr_score(logged(), strict=False) == pytest.approx(86.466, abs=1e-3)


def test_strict_score_of_the_log_counts_its_late_frames_as_drops() -> None:
    late = [f for f in logged() if f.completion_ms is not None and f.completion_ms > f.deadline_ms]
    assert late
    assert xr_score(logged(), strict=True) < xr_score(logged(), strict=False)


@pytest.mark.parametrize("policy", ["fifo", "edf", "price", "global-edf", "llf", "sjf", "heft", "xrbench", "least-slack"])
def test_golden_latencies_with_true_releases_reach_the_ceiling(policy: str) -> None:
    ceiling = 100 * sum((1500 - mj) / 1500 for mj in GOLDEN_MJ.values()) / 3
    assert strict(golden(), policy) == pytest.approx(93.83, abs=0.005)
    assert strict(golden(), policy) == pytest.approx(ceiling)


def test_frames_are_those_xrbench_counts() -> None:
    workload = golden()
    done = simulate(workload, plan_from_latencies(workload), make_policy("edf"), Median(), stop_ns=RUN_MS * MS)
    frames = xr_frames(done.jobs)
    assert [sum(f.model == m for f in frames) for m in GOLDEN_MS] == [43, 43, 31]


def test_drops_weigh_twice_and_lateness_only_when_coded() -> None:
    frames = [Frame("m", 10, 5.0), Frame("m", 20, None), Frame("m", 30, 31.0), Frame("m", 40, 33.0)]
    assert xr_score(frames, strict=True) == pytest.approx(100 * (2 / 4) * (2 / 4))
    tail = 1 / (1 + math.exp(15))
    assert xr_score(frames, strict=False) == pytest.approx(100 * (2 + tail) / 4 * 3 / 4)
    assert xr_score([], strict=True) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.floats(0, 100)), st.floats(0, 1500)), max_size=20))
def test_strict_is_never_above_coded(rows: list[tuple[str, float | None, float]]) -> None:
    frames = [Frame(model, 50.0, completion, energy) for model, completion, energy in rows]
    assert 0 <= xr_score(frames, strict=True) <= xr_score(frames, strict=False) + 1e-9 <= 100 + 1e-6


def test_offered_load_is_the_published_one() -> None:
    """GMAC/s of each scenario, every child drawn by its probability."""
    load = {}
    for name, models in SCENARIOS.items():
        fps = {m.name: 1000 / m.period_ms for m in models}
        load[name] = sum(MEGA_MACS[m.name] / 1e3 * fps[m.name] * m.probability for m in models)
    assert load["vr_gaming"] == pytest.approx(365, rel=0.05)
    assert load["ar_gaming"] == pytest.approx(835, rel=0.05)
    assert load["social_interaction_b"] == pytest.approx(208, rel=0.05)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_scenario_runs_on_every_device(scenario: str, device: str) -> None:
    workload = xr_workload(scenario, device, scale=0.5, segments=2)
    assert {t.name for t in workload.tasks} <= set(FULL_NAMES)
    assert 0 <= strict(workload, "edf") <= 100
    assert xr_workload(scenario, device) == xr_workload(scenario, device)


def test_unsupported_models_have_no_latency_there_and_small_ones_are_slow_on_the_gpu() -> None:
    tasks = {t.name: t.latency_ms for t in xr_workload("ar_assistant").tasks}
    assert "npu" not in tasks["PD"] and "npu" not in tasks["ASR"]
    assert tasks["KD"]["gpu"] == pytest.approx(1.6 * tasks["KD"]["cpu"])
    assert tasks["DE"] == pytest.approx({"cpu": 184.94, "gpu": 36.988, "npu": 9.247})


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'chess'.*vr_gaming"):
        xr_workload("chess")
    with pytest.raises(UserError, match=r"device 'z'.*a, b"):
        xr_workload("vr_gaming", "z")


def test_scenario_by_name_as_a_workload() -> None:
    assert load_workload("xr:vr_gaming") == xr_workload("vr_gaming")
    with pytest.raises(UserError, match="vr_gaming"):
        load_workload("xr:")
