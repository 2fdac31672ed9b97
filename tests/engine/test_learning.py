"""A task that learns while it serves: steps as jobs, versions swapped between jobs, nothing of it in the way of a deadline."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.cli.run import learned_line
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine import Engine
from edgeengine.engine.learning import PUBLISH, MicroStep, Training, plan_training, publish_names
from edgeengine.errors import UserError
from edgeengine.events import VersionReady
from edgeengine.spec import Latency, Plan, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.training import inference_session
from edgeengine.training.learner import Learner
from edgeengine.training.ridge import RidgeHead
from edgeengine.workload import Workload, parse_workload
from tests.training.moons import GRADIENTS, HEAD, moons_bundle, old, shifted
from tests.waiting import until

SETTINGS = {"head": HEAD, "gradients": GRADIENTS}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return moons_bundle(tmp_path_factory.mktemp("moons"))


def workload_of(bundle: Bundle) -> Workload:
    tell = f'[[task]]\nname = "tell"\nmodel = "{bundle.path}"\n'
    return parse_workload(f'{tell}[[task]]\nname = "learn"\nkind = "train"\nmodel = "{bundle.path}"\n'.encode())


def plan_of(bundle: Bundle, workload: Workload, method: str) -> Plan:
    processors = tuple(p for p in CpuProvider().discover((0,)) if p.threads == 1)
    whole = bundle.manifest.whole
    tell = TaskPlan("tell", bundle.hash, whole.stop, (Step(whole.name, 0, whole.stop, "cpu0", Latency.constant(100_000)),))
    trained = plan_training("learn", bundle, processors, SETTINGS[method])
    return Plan(SCHEMA, "here", workload.sha256, processors, (tell, *trained))


@pytest.fixture(params=SETTINGS)
def engine(request: pytest.FixtureRequest, bundle: Bundle, tmp_path: Path) -> Iterator[Engine]:
    workload = workload_of(bundle)
    with Engine(
        workload,
        plan_of(bundle, workload, request.param),
        state=tmp_path,
        learning={"learn": SETTINGS[request.param]},
        keep_log=True,
    ) as engine:
        yield engine


def ask(engine: Engine, count: int = 100) -> tuple[float, str]:
    """Accuracy on what is new, and the version of the last answer."""
    inputs, label = shifted(count, 9)
    results = [engine.submit("tell", {"x": inputs["x"][i : i + 1]}).result(30) for i in range(count)]
    assert all(r.outcome == "met" for r in results)
    return float(np.mean([r.outputs["y"][0].argmax() == k for r, k in zip(results, label, strict=True)])), results[-1].version


def published(engine: Engine) -> queue.SimpleQueue[str]:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    engine.on_version(lambda task, version: told.put(version))
    return told


def test_it_learns_while_it_serves_and_says_which_version_answered(engine: Engine) -> None:
    before, version = ask(engine)
    assert version == "" and engine.versions() == ()
    told = published(engine)
    engine.learner().learn(*old(120, 2), domain="old", known=True)
    numbers = engine.learn("tell", *shifted(240, 3))
    assert len(numbers) == 240
    name = told.get(timeout=60)
    after, version = ask(engine)
    assert after > before + 0.1 and version == name == engine.versions("learn")[-1].name
    assert any(isinstance(line.event, VersionReady) and line.event.version == name for line in engine.log)
    assert engine.rollback() == ""
    again, version = ask(engine)
    assert again == before and version == ""
    assert engine.versions()[-1].cause


def test_what_was_learned_serves_after_a_restart(bundle: Bundle, tmp_path: Path) -> None:
    workload = workload_of(bundle)
    plan = plan_of(bundle, workload, "head")
    seen = []
    for _ in range(2):
        with Engine(workload, plan, state=tmp_path, learning={"learn": HEAD}) as engine:
            if not engine.versions():
                told = published(engine)
                engine.learn("learn", *shifted(200, 3))
                told.get(timeout=60)
            seen.append(ask(engine))
    assert seen[0] == seen[1] and seen[0][1] != ""


def test_without_a_state_folder_nothing_trains(bundle: Bundle) -> None:
    workload = workload_of(bundle)
    with Engine(workload, plan_of(bundle, workload, "head"), seconds=0.01) as engine:
        engine.wait()
        with pytest.raises(UserError, match="no training task for 'tell'"):
            engine.learn("tell", *shifted(1, 1))
    assert engine.released["learn"] == 0


def test_what_cannot_learn_is_said(bundle: Bundle, tmp_path: Path) -> None:
    workload = workload_of(bundle)
    plan = plan_of(bundle, workload, "head")
    with pytest.raises(UserError, match="learning names 'tell'"):
        Engine(workload, plan, state=tmp_path, learning={"tell": HEAD})
    with (
        pytest.raises(UserError, match="other settings of learning"),
        Engine(workload, plan, state=tmp_path, learning={"learn": GRADIENTS}),
    ):
        pass
    twice = parse_workload(
        "".join(f'[[task]]\nname = "{n}"\nkind = "train"\nmodel = "{bundle.path}"\n' for n in ("a", "b")).encode()
    )
    plans = tuple(msgspec.structs.replace(plan.task("learn"), task=name) for name in ("a", "b"))
    with pytest.raises(UserError, match="train the same bundle"):
        Engine(twice, msgspec.structs.replace(plan, workload=twice.sha256, tasks=plans), state=tmp_path)


def test_publishing_is_planned_beside_training(bundle: Bundle) -> None:
    workload = workload_of(bundle)
    plan = plan_of(bundle, workload, "gradients")
    assert [s.subgraph for s in plan.task("learn").steps] == ["part0", "part1", "part2", "commit"]
    names = [s.subgraph for s in plan.task("learn" + PUBLISH).steps]
    assert names[0] == "session" and names[-2:] == ["load", "swap"] and "guard0" in names


# ---- guarded, through the engine ----


def answers(engine: Engine, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, set[str]]:
    """The outputs as they were served, and the versions that made them."""
    x = inputs["x"]
    results = [engine.submit("tell", {"x": x[i : i + 1]}).result(30) for i in range(len(x))]
    return np.concatenate([r.outputs["y"] for r in results]), {r.version for r in results}


def test_rollback_serves_the_bits_of_before(engine: Engine) -> None:
    inputs = shifted(20, 8)[0]
    base, _ = answers(engine, inputs)
    told = published(engine)
    engine.learner().learn(*old(120, 2), domain="old", known=True)
    engine.learn("tell", *shifted(240, 3))
    name = told.get(timeout=60)
    learned, versions = answers(engine, inputs)
    assert versions == {name} and not np.array_equal(learned, base)
    engine.rollback()
    again, versions = answers(engine, inputs)
    assert versions == {""}
    np.testing.assert_array_equal(again, base)


def test_a_version_that_fails_in_service_is_taken_back_within_the_window_and_the_old_bits_serve(engine: Engine) -> None:
    inputs, label = shifted(200, 30)
    base, _ = answers(engine, {"x": inputs["x"][:1]})
    told = published(engine)
    engine.learner().learn(*old(120, 2), domain="old", known=True)
    engine.learn("tell", *shifted(240, 3))
    told.get(timeout=60)
    until(lambda: not engine._runtime.scheduler.alive())  # publishing has ended: nothing looks for more to learn
    learner = engine.learner()
    shown = 0
    while learner.serving and shown < 60:  # the world has turned round
        # Straight to the learner: nothing trains meanwhile, so that it is this version that is judged.
        learner.learn({"x": inputs["x"][shown : shown + 1]}, 1 - label[shown : shown + 1])
        shown += 1
    # One answer: from now on the engine trains on what it was shown, and may publish again.
    again, versions = answers(engine, {"x": inputs["x"][:1]})
    assert versions == {""} and shown < 60
    np.testing.assert_array_equal(again, base)


def test_a_wild_rate_never_serves_however_often_its_steps_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    workload, wild = workload_of(bundle), replace(GRADIENTS, rehearsal=replace(GRADIENTS.rehearsal, lr=1e30))
    plan = plan_of(bundle, workload, "gradients")
    with Engine(workload, plan, state=tmp_path, learning={"learn": wild}) as engine:
        inputs = shifted(10, 8)[0]
        base, _ = answers(engine, inputs)
        engine.learn("tell", *shifted(120, 3))
        asked = 0
        while engine._trainings["learn"].refused < 5 and asked < 500:
            again, versions = answers(engine, inputs)
            np.testing.assert_array_equal(again, base)
            assert versions == {""}
            asked += 1
        assert engine._trainings["learn"].refused >= 5 and engine.versions() == ()


# ---- when to train ----


def test_trains_on_command(engine: Engine) -> None:
    told = published(engine)
    engine.learner().learn(*shifted(240, 3), known=True)  # known samples ask for no steps of gradients
    if engine.learner().method.takes_each:
        engine.train(steps=5)
        assert engine.learner().busy is engine.learner().method.waiting
        return
    assert engine.learner().method.steps == 0
    engine.train("tell", steps=7)
    told.get(timeout=60)
    assert engine.learner().method.steps == 7
    for wrong in (0, -1):
        with pytest.raises(UserError, match="steps must be from 1"):
            engine.train(steps=wrong)


@pytest.mark.parametrize("engine", ["gradients"], indirect=True)  # a solved head takes what comes and rests
def test_publishes_while_there_is_still_more_to_learn(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeengine.engine.learning.MOST_UNPUBLISHED", 20)
    told = published(engine)
    engine.learner().learn(*shifted(240, 3), known=True)
    engine.train(steps=100_000)
    told.get(timeout=60)
    assert engine.learner().busy and 20 <= engine.versions()[0].step < 100_000


def test_what_has_changed_is_told(engine: Engine) -> None:
    """A hundred inputs of one kind, then others: told of the task that is given them, and by what."""
    seen: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    engine.on_drift(lambda task, what: seen.put((task, what)))
    same, away = old(100, 5)[0]["x"], old(60, 6)[0]["x"] + 40
    for x in (*same, *away):
        engine.submit("tell", {"x": x[None]}).result(30)
    assert seen.get(timeout=10) == ("tell", "mean of x")


def test_the_head_of_whoever_is_there_serves_between_two_jobs(engine: Engine, bundle: Bundle) -> None:
    told = published(engine)
    head, (inputs, label) = RidgeHead(bundle), shifted(200, 5)
    head.observe(inputs, label)
    made = head.version()
    assert engine.adapters("tell").keep("anna", made, inputs, label) == ("anna",)
    base, _ = answers(engine, {"x": inputs["x"][:5]})
    engine.use("tell", "anna")
    name = told.get(timeout=60)
    hers, versions = answers(engine, {"x": inputs["x"][:5]})
    assert versions == {name} and not np.array_equal(hers, base)
    session = inference_session(bundle, made)
    np.testing.assert_allclose(hers, session.run(["y"], {"x": inputs["x"][:5]})[0], rtol=1e-4, atol=1e-5)
    engine.use("tell", "nobody")
    told.get(timeout=60)
    again, _ = answers(engine, {"x": inputs["x"][:5]})
    np.testing.assert_array_equal(again, base)


@pytest.mark.parametrize("samples", [60, 240])
@pytest.mark.parametrize("how", ["published", "adopted"])
def test_loading_and_swapping_are_the_micro_steps_planned_for_them(
    how: str, samples: int, bundle: Bundle, tmp_path: Path
) -> None:
    """However few samples are held back: their times were measured under these names."""
    training = Training("learn", Learner(bundle, tmp_path, HEAD))
    learner = training.learner
    learner.learn(*old(samples, 2), domain="old")
    learner.learn(*shifted(samples, 3))
    while learner.busy:
        learner.step()
    at: dict[str, str] = {}
    training.serve(MicroStep(lambda: None), lambda tensors: at.setdefault("loaded", name) and MicroStep(lambda: None))
    training.on_swap = lambda task, version: at.setdefault("swapped", name)
    if how == "adopted":
        training.adopt(learner.method.version())
    pieces = training.executables()
    for name in publish_names(learner):
        pieces["learn" + PUBLISH, name].run({})
    assert at == {"loaded": "load", "swapped": "swap"}


def test_a_report_tells_what_was_learned(engine: Engine) -> None:
    assert [(t.task, t.steps, t.versions) for t in engine.learned] == [("learn", 0, ())]
    told = published(engine)
    engine.learner().learn(*old(120, 2), domain="old", known=True)
    engine.learn("tell", *shifted(240, 3))
    name = told.get(timeout=60)
    until(lambda: not engine._runtime.scheduler.alive())
    (learned,) = engine.learned
    assert learned.steps > 0 and learned.refused == 0
    assert learned.serving == learned.versions[-1].name == name and learned.versions[-1].after
    solved = engine.learner().method.takes_each
    assert (learned.loss_first is None) is solved and (learned.loss_last is None) is solved
    line = learned_line(learned)
    assert line.startswith(f"learn: {learned.steps} steps") and "1 versions, guard " in line and "(user)" in line
