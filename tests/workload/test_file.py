"""Workload files: what a good one means, and one line of complaint for everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeengine.errors import UserError
from edgeengine.workload import Task, Workload, load_workload, parse_workload
from tests.builders import toml

MS = {"latency_ms": {"p": 1}}
T = {"name": "t"} | MS


def child(**more: Any) -> list[dict[str, Any]]:
    return [{"name": "parent", "period_ms": 10} | MS, {"name": "t", "after": "parent"} | MS | more]


# (tasks, words that the complaint holds: task, key, and the value or what to write)
BAD: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "unknown key": ([T | {"perid_ms": 5}], ["t", "perid_ms"]),
    "unknown key in arrivals": ([T | {"arrivals": {"poison": 5}}], ["t", "arrivals", "poison"]),
    "no name": ([MS], ["name"]),
    "empty name": ([T | {"name": ""}], ["name"]),
    "dot in name": ([T | {"name": "a.b"}], ["a.b", "name"]),
    "same name twice": ([T, T], ["'t'", "names must differ"]),
    "wrong type": ([T | {"period_ms": "fast"}], ["t", "period_ms", "str"]),
    "wrong type of segments": ([T | {"segments": 1.5}], ["t", "segments"]),
    "unknown criticality": ([T | {"criticality": "urgent"}], ["t", "criticality", "urgent"]),
    "unknown kind": ([T | {"kind": "training"}], ["t", "kind", "training"]),
    "negative period": ([T | {"period_ms": -1}], ["'t'", "period_ms", "-1"]),
    "zero rate": ([T | {"rate_hz": 0}], ["'t'", "rate_hz", "0"]),
    "negative deadline": ([T | {"deadline_ms": -3}], ["'t'", "deadline_ms", "-3"]),
    "two patterns": ([T | {"period_ms": 5, "rate_hz": 9}], ["'t'", "rate_hz", "only one", "period_ms"]),
    "pattern and arrivals": ([T | {"period_ms": 5, "arrivals": {"poisson": 1}}], ["'t'", "arrivals", "only one"]),
    "arrivals without pattern": ([T | {"arrivals": {"seed": 1}}], ["'t'", "arrivals", "poisson"]),
    "arrivals of two kinds": ([T | {"arrivals": {"poisson": 1, "trace": "t.csv"}}], ["'t'", "arrivals", "one of"]),
    "negative poisson": ([T | {"arrivals": {"poisson": -1}}], ["'t'", "arrivals", "-1"]),
    "probability above one": (child(probability=1.5), ["'t'", "probability", "1.5"]),
    "probability without parent": ([T | {"probability": 0.5}], ["'t'", "probability", "after"]),
    "training with a period": ([T | {"kind": "train", "period_ms": 5}], ["'t'", "kind"]),
    "training after another": (child(kind="train"), ["'t'", "kind", "after"]),
    "no segment": ([T | {"segments": 0}], ["'t'", "segments", "0"]),
    "neither model nor latency": ([{"name": "t"}], ["'t'", "model", "latency_ms"]),
    "model and latency": ([T | {"model": "m.edge"}], ["'t'", "model"]),
    "missing model": ([{"name": "t", "model": "nowhere.onnx"}], ["'t'", "model", "nowhere.onnx", "does not exist"]),
    "missing inputs": ([T | {"inputs": "nowhere.npz"}], ["'t'", "inputs", "nowhere.npz"]),
    "missing trace": ([T | {"arrivals": {"trace": "nowhere.csv"}}], ["'t'", "arrivals", "nowhere.csv"]),
    "negative latency": ([{"name": "t", "latency_ms": {"npu": -2}}], ["'t'", "latency_ms.npu", "-2"]),
    "latency that is no number": ([{"name": "t", "latency_ms": {"npu": "2"}}], ["t", "latency_ms"]),
    "bad shape": ([T | {"shapes": {"x": "1x3xfoo"}}], ["'t'", "shapes.x", "1x3xfoo"]),
    "negative shape": ([T | {"shapes": {"x": "1x-3"}}], ["'t'", "shapes.x", "1x-3"]),
    "unknown parent": ([T | {"after": "nobody"}], ["'t'", "after", "nobody", "known: t"]),
    "own parent": ([T | {"after": "t"}], ["after", "t -> t"]),
    "circle of two": ([T | {"after": "u"}, T | {"name": "u", "after": "t"}], ["after", "t -> u -> t"]),
    "circle of three": (
        [T | {"after": "u"}, T | {"name": "u", "after": "v"}, T | {"name": "v", "after": "t"}], ["after", "t -> u -> v -> t"],
    ),
    "circle beside the start": (
        [T | {"after": "u"}, T | {"name": "u", "after": "v"}, T | {"name": "v", "after": "u"}], ["after", "u -> v -> u"],
    ),
    "feed from one that is not the parent": (
        [*child(feed={"x": "other.y"}), T | {"name": "other"}], ["'t'", "feed.x", "'other'", "after"],
    ),
    "feed without parent": ([T | {"feed": {"x": "other.y"}}, T | {"name": "other"}], ["'t'", "feed.x", "after"]),
    "feed from nobody": (child(feed={"x": "nobody.y"}), ["'t'", "feed.x", "nobody.y"]),
    "feed without output": (child(feed={"x": "parent"}), ["'t'", "feed.x", "TASK.OUTPUT"]),
    "window without feed": (child(window={"frames": 4, "hop": 2}), ["'t'", "window", "feed"]),
    "window smaller than its hop": (child(feed={"x": "parent.y"}, window={"frames": 2, "hop": 4}), ["'t'", "window", "hop"]),
    "window without hop": (child(feed={"x": "parent.y"}, window={"frames": 2, "hop": 0}), ["'t'", "window", "hop"]),
    "glue without feed": (child(glue="numpy:abs"), ["'t'", "glue", "feed"]),
    "segments of a model": (
        [{"name": "t", "model": "m.edge", "period_ms": 10, "segments": 2}], ["'t'", "segments", "latency_ms"],
    ),
    "range of stated latencies": ([T | {"range": [0, 5]}], ["'t'", "range", "latency_ms"]),
    "glue without function": (child(feed={"x": "parent.y"}, glue="numpy"), ["'t'", "glue", "numpy", "module:function"]),
    "unknown stale": ([T | {"stale": "newest"}], ["'t'", "stale", "newest", "queue:N"]),
    "queue of none": ([T | {"stale": "queue:0"}], ["'t'", "stale", "queue:0"]),
    "queue without number": ([T | {"stale": "queue:many"}], ["'t'", "stale", "queue:many"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_workload_is_one_line_that_names_the_fault(case: str, tmp_path: Path) -> None:
    tasks, words = BAD[case]
    file = tmp_path / "bad.toml"
    file.write_bytes(toml(*tasks))
    with pytest.raises(UserError) as e:
        load_workload(file)
    message = str(e.value)
    assert "\n" not in message
    assert str(file) in message
    assert not [w for w in words if w not in message], message


@pytest.mark.parametrize("key", ["period_ms", "rate_hz", "deadline_ms"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0.0", "1e-9", "1e300"])
def test_times_that_are_no_times_are_refused(key: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"'t', {key}"):
        parse_workload(f'[[task]]\nname = "t"\nlatency_ms = {{ p = 1 }}\n{key} = {value}\n'.encode())


@pytest.mark.parametrize("value", ["nan", "inf", "0.0", "-1"])
def test_latencies_that_are_no_times_are_refused(value: str) -> None:
    with pytest.raises(UserError, match=r"'t', latency_ms\.p"):
        parse_workload(f'[[task]]\nname = "t"\nlatency_ms = {{ p = {value} }}\n'.encode())


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "no [[task]]"),
        (b"task = []", "no [[task]]"),
        (b"[[task]\nname = 1", "not valid TOML"),
        (b"[[task]]\nname = '\xff'", "not valid TOML"),
        (b"[[tasks]]\nname = 't'", "tasks"),
        (b"task = 5", "task"),
        (b"task = [5]", "task"),
    ],
)
def test_file_that_is_no_workload_is_refused_by_name(raw: bytes, word: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(raw)
    with pytest.raises(UserError) as e:
        load_workload(file)
    assert str(file) in str(e.value)
    assert word in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_file_that_cannot_be_read_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the workload"):
        load_workload(tmp_path / name)


def task(name: str, *tables: dict[str, Any]) -> Task:
    return parse_workload(toml(*tables)).task(name)


def test_deadline_defaults_to_the_period() -> None:
    assert task("t", T | {"period_ms": 7}).relative_deadline_ns == 7_000_000
    assert task("t", T | {"rate_hz": 30}).relative_deadline_ns == 33_333_333
    assert task("t", T | {"period_ms": 7, "deadline_ms": 3}).relative_deadline_ns == 3_000_000


def test_deadline_of_a_child_defaults_to_the_period_of_whom_it_descends_from() -> None:
    tables = [*child(), {"name": "grandchild", "after": "t"} | MS]
    assert task("t", *tables).relative_deadline_ns == 10_000_000
    assert task("grandchild", *tables).relative_deadline_ns == 10_000_000
    assert task("t", *child(period_ms=20)).relative_deadline_ns == 20_000_000
    assert task("t", *child(deadline_ms=4)).relative_deadline_ns == 4_000_000


def test_no_deadline_without_a_period() -> None:
    assert task("t", T).relative_deadline_ns is None
    assert task("t", T | {"kind": "train"}).relative_deadline_ns is None
    assert task("t", T | {"arrivals": {"poisson": 5}}).relative_deadline_ns is None
    assert task("t", T | {"kind": "train", "deadline_ms": 5}).relative_deadline_ns == 5_000_000


def test_other_defaults() -> None:
    t = task("t", T)
    assert (t.criticality, t.kind, t.probability, t.segments, t.stale, t.carry, t.feed) == (
        "normal",
        "inference",
        1.0,
        1,
        None,
        {},
        {},
    )
    assert not t.has_pattern and not t.is_training and not t.latest_only and t.queue_limit is None


def test_stale_is_read_as_a_rule() -> None:
    assert task("t", T | {"stale": "latest"}).latest_only
    assert task("t", T | {"stale": "queue:12"}).queue_limit == 12


def test_paths_are_resolved_against_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    for name in ("m.onnx", "x.npz", "trace.csv"):
        (folder / name).write_text("")
    (folder / "w.toml").write_bytes(
        toml(
            {"name": "t", "model": "m.onnx", "inputs": "x.npz", "arrivals": {"trace": "trace.csv"}},
            T | {"name": "u", "inputs": "zeros"},
        )
    )
    monkeypatch.chdir(tmp_path)
    made = load_workload("there/w.toml")
    t = made.task("t")
    assert (t.model, t.inputs) == (str(folder / "m.onnx"), str(folder / "x.npz"))
    assert t.arrivals is not None and t.arrivals.trace == str(folder / "trace.csv")
    assert made.task("u").inputs == "zeros"


def test_identity_is_that_of_the_bytes(tmp_path: Path) -> None:
    def made(raw: bytes) -> Workload:
        return parse_workload(raw)

    assert made(toml(T)).sha256 == made(toml(T)).sha256 != made(toml(T) + b"# note").sha256
