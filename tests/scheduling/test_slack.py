"""Training in the slack: no micro-step begins that could stand in the way of a release that is known."""

from __future__ import annotations

from types import SimpleNamespace as Stub

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeengine.events import Finished, Started
from edgeengine.scheduling import make_policy, slack
from edgeengine.simulation import Median, simulate
from tests.builders import MS, plan, workload

CAMERA = {"name": "camera", "period_ms": 10, "deadline_ms": 10, "criticality": "high", "latency_ms": {"a": 3, "b": 3}}


def run(
    *tasks: dict[str, object], policy: str = "edf", stop_ms: int = 400
) -> tuple[dict[str, int], list[tuple[int, int, str]], int]:
    """Jobs met by task, (start, end, processor) of the micro-steps, and jobs of the first task that were not met."""
    made = workload(*tasks)
    done = simulate(made, plan(made), make_policy(policy), Median(), stop_ns=stop_ms * MS, keep_log=True)
    begun: dict[tuple[str, str], int] = {}
    pieces = []
    for line in done.log or []:
        event = line.event
        if isinstance(event, Started):
            begun[event.task, event.processor] = event.at_ns
        if isinstance(event, Finished) and event.task.startswith("learn"):
            pieces.append((begun[event.task, event.processor], event.at_ns, event.processor))
    met = {t.name: sum(j.outcome == "met" for j in done.jobs if j.task.name == t.name) for t in made.tasks}
    missed = sum(j.outcome != "met" for j in done.jobs if j.task.name == made.tasks[0].name)
    return met, pieces, missed


@pytest.mark.parametrize("policy", ["edf", "price", "fifo"])
def test_on_one_core_micro_steps_end_before_the_next_release(policy: str) -> None:
    camera = {**CAMERA, "latency_ms": {"a": 3}}
    _, pieces, missed = run(camera, {"name": "learn", "kind": "train", "segments": 3, "latency_ms": {"a": 6}}, policy=policy)
    assert missed == 0 and len(pieces) > 80
    for start, end, _ in pieces:
        assert start // (10 * MS) == (end - 1) // (10 * MS)


def test_a_long_micro_step_may_run_where_the_release_has_another_core() -> None:
    met, pieces, missed = run(CAMERA, {"name": "learn", "kind": "train", "latency_ms": {"a": 25, "b": 25}})
    assert missed == 0 and met["learn"] >= 10 and all(end - start == 25 * MS for start, end, _ in pieces)


def test_two_that_train_never_take_both_cores_from_a_release() -> None:
    learns = [{"name": f"learn{i}", "kind": "train", "latency_ms": {"a": 9, "b": 9}} for i in range(2)]
    met, _, missed = run(CAMERA, *learns)
    assert missed == 0 and met["learn0"] > 10


def test_background_work_and_training_do_not_take_both_cores_from_a_release() -> None:
    background = {"name": "notes", "period_ms": 50, "criticality": "background", "latency_ms": {"a": 30, "b": 30}}
    camera = {**CAMERA, "deadline_ms": 4}
    met, _, missed = run(camera, background, {"name": "learn", "kind": "train", "latency_ms": {"a": 7, "b": 7}})
    assert missed == 0 and met["notes"] >= 6 and met["learn"] > 10


def test_what_never_fits_never_starts() -> None:
    camera = {**CAMERA, "latency_ms": {"a": 3}}
    _, pieces, _ = run(camera, {"name": "learn", "kind": "train", "latency_ms": {"a": 8}})
    assert len(pieces) <= 1  # after the last release


@settings(deadline=None, max_examples=30)
@given(st.integers(5, 40), st.integers(1, 4), st.floats(0.3, 3), st.integers(1, 4), st.sampled_from(["edf", "price"]))
def test_training_costs_a_critical_task_no_deadline(period: int, runs: int, piece: float, segments: int, policy: str) -> None:
    camera = {**CAMERA, "period_ms": period, "deadline_ms": runs + 0.5, "latency_ms": {"a": runs}}
    learn = {"name": "learn", "kind": "train", "segments": segments, "latency_ms": {"a": piece * segments}}
    _, _, alone = run(camera, policy=policy)
    _, _, missed = run(camera, learn, policy=policy)
    assert missed <= alone


def test_most_of_the_slack_is_used() -> None:
    tasks = [{**CAMERA, "period_ms": 32, "deadline_ms": 32}, {**CAMERA, "name": "sound", "period_ms": 80, "deadline_ms": 80}]
    learns = [{"name": f"learn{i}", "kind": "train", "segments": 4, "latency_ms": {"a": 8, "b": 8}} for i in range(2)]
    made = workload(*tasks, *learns)
    done = simulate(made, plan(made), make_policy("edf"), Median(), stop_ns=2000 * MS, keep_log=True)
    busy = {True: 0, False: 0}
    committed = {(j.task.name, j.index) for j in done.jobs if j.outcome == "met"}
    for line in done.log or []:
        event = line.event
        if isinstance(event, Finished) and (event.task, event.index) in committed:
            busy[event.task.startswith("learn")] += event.duration_ns
    slack = 2 * 2000 * MS - busy[False]
    assert busy[True] >= 0.85 * slack


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.none() | st.integers(1, 100)), max_size=6))
def test_the_fastest_that_may_start_else_the_first_release_awaited(moves: list[tuple[bool, int | None]]) -> None:
    """(busy, the release it waits for) of each move, the fastest first."""
    made = [Stub(processor=Stub(mask=1 << i, held_until_ns=0), release_ns=at) for i, (_, at) in enumerate(moves)]
    busy = sum(1 << i for i, (taken, _) in enumerate(moves) if taken)
    job = Stub(task=Stub(fastest=[made], moved=False), position=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slack, "awaited_ns", lambda view, job, move, now, busy: move.release_ns)
        found = slack.first_startable(Stub(), job, 0, busy)  # type: ignore[arg-type]
    free = [m for m, (taken, _) in zip(made, moves, strict=True) if not taken]
    now = next((m for m in free if m.release_ns is None), None)
    assert found == ((now, None) if now is not None else (None, min((m.release_ns for m in free), default=None)))
