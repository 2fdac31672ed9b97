"""The demo's content: a workload that loads, sources for every name in it, and shapes that agree with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coach import packages
from coach.demo import MODELS, Demo, demo
from edgeengine.errors import UserError
from edgeengine.spec import parse_shape
from edgeengine.workload import load_workload, release_times

LABELS = ["PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW"]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory, foreign: Callable[[packages.PackageFile], Path]) -> Demo:
    """With a stand-in for the exercise model: nothing here runs it."""
    for file in packages.ALL:
        foreign(file)
    models = tmp_path_factory.mktemp('mod "els" é')
    (models / "exercise.onnx").write_bytes(b"")
    (models / "exercise.json").write_text(json.dumps({"labels": LABELS, "held_out_subject": 4}))
    return demo(tmp_path_factory.mktemp("demo") / "new folder", models=models)


def test_workload_loads(content: Demo) -> None:
    workload = load_workload(content.workload)
    assert [t.name for t in workload.tasks] == ["exercise", "silero", "mel", "embedding", "pitch", "learn"]
    assert [(t.relative_deadline_ns or 0) / 1e6 for t in workload.tasks] == [100, 32, 80, 80, 500, 0]
    assert [t.criticality for t in workload.tasks] == ["high"] * 4 + ["background", "normal"]
    assert workload.task(content.task).name == "exercise"


def test_sources_give_what_the_workload_says(content: Demo) -> None:
    for task in load_workload(content.workload).tasks:
        if task.inputs is None:
            assert task.after is not None or task.name == content.learner
            continue
        source = content.sources[task.inputs.removeprefix("source:")]
        shapes = {
            name: parse_shape(text, name) for name, text in task.shapes.items() if name not in task.carry.values()
        }
        releases = release_times(task)
        for index in range(3):
            given = source.read(index, next(releases))
            assert {name: array.shape for name, array in given.items()} == shapes


def test_truth_and_labels(content: Demo) -> None:
    assert list(content.labels) == LABELS
    assert [content.truth(int((k + 0.5) / 7 * 10e9)) for k in range(7)] == LABELS


def test_a_second_demo_in_the_same_folder(content: Demo) -> None:
    again = demo(content.workload.parent, models=Path(load_workload(content.workload).tasks[0].model or "").parent)
    for name, source in content.sources.items():
        for key, array in source.read(2, 10**9).items():
            np.testing.assert_array_equal(array, again.sources[name].read(2, 10**9)[key])


def test_faults_are_one_line(tmp_path: Path, content: Demo) -> None:
    with pytest.raises(UserError, match=r"exercise\.json: cannot be read"):
        demo(tmp_path, models=tmp_path)
    models = Path(load_workload(content.workload).tasks[0].model or "").parent
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="give a folder"):
        demo(tmp_path / "file", models=models)
    with pytest.raises(UserError, match="seconds"):
        demo(tmp_path, 0, models=models)


def test_right_most_of_the_time_with_the_real_model(
    tmp_path: Path, foreign: Callable[[packages.PackageFile], Path], open_session: Callable[[Path], object]
) -> None:
    if not (MODELS / "exercise.onnx").exists():
        pytest.skip("the exercise model is not there yet")
    for file in packages.ALL:
        foreign(file)
    content = demo(tmp_path)
    session = open_session(MODELS / "exercise.onnx")
    right = 0
    for index, release_ns in enumerate(range(0, 10 * 10**9, 500_000_000)):
        (logits,) = session.run(["logits"], content.sources["exercise"].read(index, release_ns))  # type: ignore[attr-defined]
        right += content.labels[int(logits[0].argmax())] == content.truth(release_ns)
    assert right >= 12
