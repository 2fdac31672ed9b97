"""Simulated training does the steps that its samples ask for, when they have come, and no more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeengine.errors import UserError
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.workload import Workload, parse_workload
from edgeengine.workload.learn import HELD, RUN, SOLVED
from tests.builders import plan


def learning(method: str, samples_hz: float | None, step_ms: float = 2.0) -> Workload:
    supply = "" if samples_hz is None else f", samples_hz = {samples_hz}"
    return parse_workload(
        f"""
        [[task]]
        name = "camera"
        period_ms = 10
        latency_ms = {{ cpu = 3 }}
        [[task]]
        name = "learn"
        kind = "train"
        latency_ms = {{ cpu = {step_ms} }}
        learn = {{ method = "{method}", steps_per_sample = 0.5{supply} }}
        """.encode()
    )


def steps(tasks: Workload, seconds: float) -> list[tuple[int, int]]:
    """(release, end) of the training steps."""
    done = simulate(tasks, plan(tasks), make_policy("edf"), Median(), stop_ns=round(seconds * 1e9))
    return [(j.release_ns, j.finish_ns or 0) for j in done.jobs if j.task.name == "learn" and j.finished]


@given(st.sampled_from(["head", "gradients"]), st.floats(1, 400), st.floats(0.5, 3))
def test_no_step_before_its_samples_have_come(method: str, samples_hz: float, seconds: float) -> None:
    tasks = learning(method, samples_hz)
    learn = tasks.task("learn").learn
    assert learn is not None and learn.steps_hz == pytest.approx(
        samples_hz * (1 - HELD / RUN) * (1 / SOLVED if method == "head" else 0.5)
    )
    done = steps(tasks, seconds)
    for i, (release_ns, _) in enumerate(done):
        assert (i + 1) / learn.steps_hz * 1e9 <= release_ns + 1 < seconds * 1e9 + 1
    if learn.steps_hz < 200:  # there is time for all: 7 of 10 ms, 2 a step, each waiting for a release at most
        assert len(done) >= int(learn.steps_hz * (seconds - 0.02)) - 1


def test_without_a_supply_there_is_always_another_step() -> None:
    assert len(steps(learning("head", None), 1.0)) >= 290  # three in each of a hundred gaps of 7 ms
    assert len(steps(learning("head", 20.0), 1.0)) == 0  # one asked for at 1.0 s
    assert len(steps(learning("head", 40.0), 1.6)) == 3


def test_samples_that_come_faster_than_steps_are_done_wait() -> None:
    """Steps then follow one another as they do without end, but for the first samples' coming."""
    fast, endless = steps(learning("gradients", 10_000.0), 1.0), steps(learning("gradients", None), 1.0)
    assert len(endless) - 1 <= len(fast) <= len(endless)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("inf"), float("nan"), 1e6])
def test_impossible_rates_are_refused(wrong: float) -> None:
    with pytest.raises(UserError, match="samples_hz must be a positive number"):
        learning("head", wrong)
