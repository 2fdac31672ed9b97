"""Faults in files and ranges are user errors, named; and no job is ever lost."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from edgeengine.errors import UserError
from edgeengine.io import make_source
from edgeengine.scheduling import make_policy
from edgeengine.simulation import Median, simulate
from edgeengine.spec import TensorSpec
from edgeengine.workload import load_workload, release_times
from tests.builders import MS, plan, toml, workload


def test_internal_field_is_no_key() -> None:
    with pytest.raises(UserError):
        workload({"name": "t", "inherited_deadline_ms": 5.0})


@pytest.mark.parametrize("raw", [b"1\n\xff\xfe\n", None])
def test_trace_that_cannot_be_read_is_a_user_error(tmp_path: Path, raw: bytes | None) -> None:
    if raw is None:
        (tmp_path / "trace.csv").mkdir()
    else:
        (tmp_path / "trace.csv").write_bytes(raw)
    (tmp_path / "w.toml").write_bytes(toml({"name": "t", "latency_ms": {"p": 1}, "arrivals": {"trace": "trace.csv"}}))
    with pytest.raises(UserError):
        list(islice(release_times(load_workload(tmp_path / "w.toml").tasks[0]), 5))


def test_inverted_range_is_a_user_error() -> None:
    with pytest.raises(UserError):
        make_source("random:0", [TensorSpec("x", "int64", (2,))], (5, 2))


def test_no_job_of_a_child_faster_than_its_parent_is_lost() -> None:
    made = workload({"name": "p", "period_ms": 100}, {"name": "c", "after": "p", "period_ms": 10})
    done = simulate(made, plan(made), make_policy("edf"), Median(), stop_ns=1000 * MS)
    assert sum(j.task.name == "c" for j in done.jobs) == 100
