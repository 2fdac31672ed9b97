"""The names that apps use."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import edgeengine
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median
from tests.builders import MS, plan, workload


def test_every_public_name_is_there_and_documented() -> None:
    assert edgeengine.__all__ == sorted(edgeengine.__all__)
    for name in edgeengine.__all__:
        value = getattr(edgeengine, name)
        assert value.__doc__, f"{name} has no docstring"
        assert value.__name__ == name
    assert set(edgeengine.__all__) <= set(dir(edgeengine))


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'nothing'"):
        edgeengine.nothing  # noqa: B018


def test_version_is_that_of_the_distribution() -> None:
    assert edgeengine.__version__ == version("edgeengine")


def test_errors_tell_who_can_mend_them() -> None:
    codes = {
        edgeengine.UserError: 2, edgeengine.NotSupported: 2, edgeengine.PlanInfeasible: 3, edgeengine.DeviceError: 4,
        edgeengine.InternalError: 70,
    }  # fmt: skip
    for error, code in codes.items():
        assert issubclass(error, edgeengine.EdgeEngineError)
        assert error.exit_code == code
    assert issubclass(edgeengine.UserError, ValueError)


def test_simulation_from_python() -> None:
    tasks = workload({"name": "t", "period_ms": 10, "latency_ms": {"npu": 3}})
    done = edgeengine.simulate(tasks, plan(tasks), make_policy("edf"), Median(), stop_ns=100 * MS)
    assert [j.outcome for j in done.jobs] == ["met"] * 10


def test_stream_replay_gives_what_a_sensor_would_have_delivered() -> None:
    samples = np.arange(20).reshape(10, 2)
    replay = edgeengine.StreamReplay(samples, rate_hz=2, window=3, start=4)
    np.testing.assert_array_equal(replay.window_at(0), samples[1:4])
    np.testing.assert_array_equal(replay.window_at(499 * MS), samples[1:4])
    np.testing.assert_array_equal(replay.window_at(500 * MS), samples[2:5])
    np.testing.assert_array_equal(replay.window_at(-500 * MS), samples[0:3])
    np.testing.assert_array_equal(replay.window_at(3000 * MS), samples[7:10])
    for outside in (-501, 3500):
        with pytest.raises(edgeengine.UserError, match="no window"):
            replay.window_at(outside * MS)
    for wrong in ({"rate_hz": 0}, {"window": 0}, {"window": 5}, {"start": 11}):
        with pytest.raises(edgeengine.UserError, match="stream replay"):
            edgeengine.StreamReplay(samples, **({"rate_hz": 2, "window": 3, "start": 4} | wrong))


def test_package_is_typed_and_licensed() -> None:
    root = Path(__file__).parents[1]
    assert (root / "LICENSE").read_text().lstrip().startswith("Apache License")
