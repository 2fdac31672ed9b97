"""REEF's DISB and Band's samples: as published, and simulated under every policy."""

from __future__ import annotations

from itertools import pairwise

import pytest

from edgeengine.errors import UserError
from edgeengine.planning import plan_from_latencies
from edgeengine.reporting import task_rows
from edgeengine.scheduling import make_policy
from edgeengine.scheduling.policies import BUILT_IN
from edgeengine.simulation import Median, simulate
from edgeengine.workload import Workload, load_workload, revised
from edgeengine.workload.band import band_workload
from edgeengine.workload.disb import MEGA_MACS, disb_workload
from tests.builders import MS

NAMES = ("disb:A", "disb:B", "disb:C", "disb:D", "disb:E", "band:sample", "band:heat")
ALL = {"vgg", "resnet", "densenet", "inception", "bert"}


@pytest.mark.parametrize(
    ("name", "rate_hz", "poisson", "real_time", "best_effort"),
    [
        ("A", 100, None, {"vgg"}, {"resnet"}),
        ("B", 220, None, {"vgg"}, {"resnet"}),
        ("C", 100, None, {"vgg"}, ALL),
        ("D", 20, None, ALL, ALL),
        ("E", None, 20, ALL, ALL),
    ],
)
def test_disb_clients_are_the_published_ones(
    name: str, rate_hz: float | None, poisson: float | None, real_time: set[str], best_effort: set[str]
) -> None:
    tasks = disb_workload(name).tasks
    hard = [t for t in tasks if t.name.startswith("rt-")]
    loops = [t for t in tasks if t.name.startswith("be-")]
    assert {t.name[3:] for t in hard} == real_time and {t.name[3:] for t in loops} == best_effort
    assert len(tasks) == len(real_time) + len(best_effort)
    for task in hard:
        assert task.criticality == "high" and task.deadline_ms == pytest.approx(1e3 / (rate_hz or poisson or 0))
        assert (task.rate_hz, task.arrivals and task.arrivals.poisson) == (rate_hz, poisson)
    for task in loops:
        assert task.is_training and task.relative_deadline_ns is None


def test_band_tasks_are_the_published_copies() -> None:
    sample, heat = band_workload("sample"), band_workload("heat")
    assert [t.name for t in sample.tasks] == ["retinaface-0", "retinaface-1", "retinaface-2", "mobilenet-v1-0", "mobilenet-v1-1"]
    assert {t.period_ms for t in sample.tasks} == {30} and {t.period_ms for t in heat.tasks} == {90}
    assert [t.name for t in heat.tasks] == [f"mobilenet-v2-{i}" for i in range(10)]
    latency = {t.name: t.latency_ms["npu"] * 2e3 for t in (*sample.tasks, *heat.tasks)}  # device a: 2 tera-MACs a second
    assert latency["mobilenet-v1-0"] == pytest.approx(568.7) and latency["mobilenet-v2-9"] == pytest.approx(300.8)
    assert 150 < latency["retinaface-0"] < 250


def test_latencies_are_macs_over_the_rate_of_the_device() -> None:
    (vgg, *_) = disb_workload("A", "b", scale=0.5, segments=4).tasks
    assert vgg.latency_ms == pytest.approx({"cpu": 24.54, "gpu": 9.816, "npu": 4.908}) and vgg.segments == 4
    assert vgg.energy_mj == pytest.approx({"cpu": 3 * 24.54, "gpu": 4 * 9.816, "npu": 2 * 4.908})
    assert MEGA_MACS["bert"] == pytest.approx(1368.3, abs=0.1)


@pytest.mark.parametrize("policy", sorted(BUILT_IN))
@pytest.mark.parametrize("name", ["disb:A", "disb:E", "band:sample"])
def test_every_policy_runs_them(name: str, policy: str) -> None:
    workload = load_workload(name)
    done = simulate(workload, plan_from_latencies(workload), make_policy(policy), Median(), stop_ns=200 * MS)
    rows = {r["task"]: r for r in task_rows(workload, done.jobs, done.released)}
    assert all(r["released"] for r in rows.values())
    assert sum(int(r["met"] or 0) for r in rows.values()) > 0


def test_a_closed_loop_goes_on_as_soon_as_its_answer_has_come() -> None:
    workload = load_workload("disb:A")
    done = simulate(workload, plan_from_latencies(workload), make_policy("edf"), Median(), stop_ns=500 * MS)
    loop = [j for j in done.jobs if j.task.name == "be-resnet"]
    assert len(loop) > 2
    assert all(b.release_ns == a.finish_ns for a, b in pairwise(loop))


@pytest.mark.parametrize("name", NAMES)
def test_by_name_as_a_workload(name: str) -> None:
    found = load_workload(name)
    assert isinstance(found, Workload) and found.path == name and found == load_workload(name)
    task = found.tasks[0].name
    assert revised(found, {task: {"segments": 2}}).task(task).segments == 2  # within what the file's rules allow


@pytest.mark.parametrize(("name", "known"), [("disb:Z", "A, B, C, D, E"), ("band:", "sample, heat")])
def test_unknown_names_list_the_known_ones(name: str, known: str) -> None:
    with pytest.raises(UserError, match=known):
        load_workload(name)
