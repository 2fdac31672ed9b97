"""Sweeps: what can be varied, that answers do not depend on who computes them, and that an interrupted one goes on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.devices import load_profile
from edgeengine.errors import UserError
from edgeengine.planning import plan_from_latencies
from edgeengine.spec import Plan
from edgeengine.sweeps import Question, find, parse_axis, points, run_points
from edgeengine.sweeps.frontier import frontier_html
from edgeengine.sweeps.space import setting, weakest_first
from edgeengine.workload import Workload
from edgeengine.workload.xr import rates_of
from tests.builders import MS, workload

TASKS = workload(
    {"name": "a", "latency_ms": {"cpu": 8, "npu": 3}, "period_ms": 10, "segments": 2},
    {"name": "b", "latency_ms": {"npu": 9}, "arrivals": {"poisson": 20}, "deadline_ms": 40},
    {"name": "c", "latency_ms": {"cpu": 1}, "after": "a"},
)


def planner(tasks: Workload, device: str | None) -> tuple[Workload, Plan]:
    return tasks, plan_from_latencies(tasks)


QUESTION = Question(TASKS, planner, seconds=1.0, seeds=2)
AXES = [parse_axis("rate=0.5:2:3", TASKS), parse_axis("policy=edf,fifo", TASKS)]


def encoded(answers: object) -> bytes:
    return msgspec.json.encode(answers)


def test_points_are_every_combination_in_order() -> None:
    assert points(AXES) == [{"rate": r, "policy": p} for r in (0.5, 1.25, 2.0) for p in ("edf", "fifo")]
    assert points([]) == [{}]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rate", "KEY=V1,V2"),
        ("rate=", "KEY=V1,V2"),
        ("speed=1", "no key 'speed'"),
        ("a.speed=1", "no key 'a.speed'"),
        ("a.rate=1", "no key 'a.rate'"),
        ("z.period_ms=1", "no task 'z'"),
        ("rate=fast", "'fast' is not a number"),
        ("rate=0", "positive"),
        ("rate=nan", "positive"),
        ("rate=1:2", "FROM:TO:COUNT"),
        ("rate=1:2:1", "count from 2"),
        ("device=nobody/*", "no described device"),
    ],
)
def test_axes_that_cannot_be(text: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        parse_axis(text, TASKS)


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(UserError, match="varied twice"):
        points([AXES[0], parse_axis("rate=1", TASKS)])


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(1, 1000))
def test_rates_and_deadlines_scale_whatever_states_them(rate: float, deadline: float, period: float) -> None:
    made = setting(TASKS, {"rate": rate, "deadline": deadline, "a.period_ms": period})
    a, b, c = made.tasks
    assert a.period_ms == pytest.approx(period / rate)
    assert b.arrivals is not None and b.arrivals.poisson == pytest.approx(20 * rate)
    assert (a.relative_deadline_ns, c.relative_deadline_ns) == (pytest.approx(period / rate * deadline * MS, abs=12),) * 2
    assert b.relative_deadline_ns == pytest.approx(40 * deadline * MS, abs=2)
    assert c.after == "a" and made.sha256 != TASKS.sha256


def test_other_keys_of_a_task_and_what_they_displace() -> None:
    a = setting(TASKS, {"a.rate_hz": 50.0, "a.segments": 3.0, "a.criticality": "high"}).tasks[0]
    assert (a.rate_hz, a.period_ms, a.segments, a.criticality) == (50.0, None, 3, "high")
    with pytest.raises(UserError, match="criticality"):
        setting(TASKS, {"a.criticality": "vital"})
    with pytest.raises(UserError, match="probability"):
        setting(TASKS, {"a.probability": 0.5})  # only a child has one


@pytest.mark.parametrize("backend", ["local", "dask"])
def test_answers_do_not_depend_on_the_workers(backend: str) -> None:
    wanted = points(AXES)
    alone = run_points(QUESTION, wanted)
    assert encoded(run_points(QUESTION, wanted, workers=2, backend=backend)) == encoded(alone)
    assert [a["point"] for a in alone] == wanted


def test_an_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    kept, wanted = tmp_path / "kept.jsonl", points(AXES)
    asked: list[str] = []

    def interrupted(tasks: Workload, device: str | None) -> tuple[Workload, Plan]:
        asked.append(tasks.sha256)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return planner(tasks, device)

    question = Question(TASKS, interrupted, seconds=1.0, seeds=2)
    with pytest.raises(KeyboardInterrupt):
        run_points(question, wanted, kept=kept)
    with kept.open("a") as file:
        file.write('{"key": "cut sho')
    told: list[float] = []
    answers = run_points(question, wanted, kept=kept, progress=told.append)
    assert len(asked) == 4 + 3 and told == pytest.approx([1 / 3, 2 / 3, 1])
    assert encoded(answers) == encoded(run_points(QUESTION, wanted))
    run_points(question, wanted, kept=kept)
    assert len(asked) == 7  # nothing left to ask
    kept.write_text("not a sweep\n")
    with pytest.raises(UserError, match="line 1: not a line of a sweep"):
        run_points(question, wanted, kept=kept)


def test_what_no_processor_can_run_is_infeasible_not_an_error() -> None:
    from edgeengine.errors import PlanInfeasible

    def unable(tasks: Workload, device: str | None) -> tuple[Workload, Plan]:
        raise PlanInfeasible("nothing runs Conv")

    (answer,) = run_points(Question(TASKS, unable), [{}])
    assert answer == {"point": {}, "feasible": False, "reason": "nothing runs Conv", "tasks": []}


ONE = workload({"name": "t", "latency_ms": {"p": 6}, "period_ms": 10})


@pytest.mark.parametrize(("text", "best"), [("rate=0.1,10", 10 / 6), ("t.period_ms=1,50", 6.0), ("deadline=0.01,1", 0.6)])
def test_bisection_finds_the_edge(text: str, best: float) -> None:
    """One task of 6 ms every 10 ms on one processor: everything that can be known is."""
    found = find(Question(ONE, planner, seconds=1.0, times="median"), parse_axis(text, ONE))
    assert isinstance(found.value, float) and abs(found.value - best) <= 0.01 * max(best, found.value) * 2
    assert found.confirmed is not None and found.confirmed["feasible"]
    assert dict(found.tried)[found.value] and len(found.tried) < 20


def test_of_names_the_first_feasible_is_found() -> None:
    late = workload(
        {"name": "t", "latency_ms": {"p": 6}, "period_ms": 10}, {"name": "u", "latency_ms": {"p": 3}, "period_ms": 10}
    )
    found = find(Question(late, planner, seconds=1.0), parse_axis("policy=fifo,edf", late))
    assert found.value == "fifo" and found.tried == [("fifo", True)]
    none = find(Question(ONE, planner, seconds=1.0), parse_axis("t.deadline_ms=1,5", ONE))
    assert (none.value, none.confirmed) == (None, None)


def test_devices_by_pattern_come_from_the_weakest() -> None:
    def fastest(name: str) -> float:
        return max(rates_of(load_profile(name)).tera_macs_s.values())

    boards = weakest_first("raspberrypi/*")
    assert len(boards) == 3 and boards == sorted(boards, key=fastest)
    assert parse_axis("device=raspberrypi/*,raspberrypi/pi4", TASKS).values == tuple(boards)
    assert not any(name.startswith("hailo/") for name in weakest_first("*"))  # of which no latencies are known


def test_the_frontier_is_one_page(tmp_path: Path) -> None:
    page = frontier_html("w.toml", AXES, run_points(QUESTION, points(AXES))).decode()
    assert "policy edf" in page and "policy fifo" in page and 'src="http' not in page
    with pytest.raises(UserError, match="numeric key"):
        frontier_html("w.toml", AXES[1:], [])


def test_a_cluster_that_does_not_answer() -> None:
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}), pytest.raises(UserError, match="no Dask scheduler"):
        run_points(QUESTION, [{}], backend="dask", cluster="tcp://127.0.0.1:1")


def test_a_backend_that_is_not_there() -> None:
    with pytest.raises(UserError, match="unknown backend 'grid'"):
        run_points(QUESTION, [{}], backend="grid")
