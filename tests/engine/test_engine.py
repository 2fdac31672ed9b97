"""The live engine on real threads and ONNX Runtime: what callers get back, and what it survives."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine import Engine, JobResult
from edgeengine.errors import DeviceError, InternalError, UserError
from edgeengine.io import make_source
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.fifo import Fifo
from edgeengine.spec import Processor, Step
from edgeengine.workload import parse_workload
from tests.builders import real_plan, toml
from tests.scheduling.driver import replay

Bundles = dict[str, Bundle]
ByHand = Callable[..., dict[str, np.ndarray]]
SOON = 20.0  # seconds until a test gives up on a result; none waits that long when all is well
X = np.array([[0.5, -1.0, 2.0], [0.0, 3.0, -4.0]], np.float32)


def engine(bundles: Bundles, *tasks: dict[str, Any], **options: Any) -> Engine:
    """An engine for tasks named after their models (or naming one as `of`); nothing is dropped early, deadlines are far away."""
    names = {t["name"]: t.get("of", t["name"]) for t in tasks}
    defaults = [{"deadline_ms": 60_000, "model": str(bundles[names[t["name"]]].path)} for t in tasks]
    given = [{k: v for k, v in t.items() if k != "of"} for t in tasks]
    made = parse_workload(toml(*(d | g for d, g in zip(defaults, given, strict=True))))
    by_task = {name: bundles[model] for name, model in names.items()}
    return Engine(made, real_plan(made, by_task), policy=options.pop("policy", Fifo(early_drop=False)), keep_log=True, **options)


class Provided:
    """The CPU provider with something done before each run."""

    name = CpuProvider.name

    def __init__(self, before: Callable[[str], None]):
        self._before, self._real, self.closed = before, CpuProvider(), False

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        return self._real.discover(cores)

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        inner, before = self._real.load(bundle, step, processor), self._before

        class Run:
            def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
                before(step.subgraph)
                return inner.run(feeds)

        return Run()

    def close(self) -> None:
        self.closed = True
        self._real.close()


class Gate:
    """Runs wait at it until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Semaphore(0), threading.Event()

    def __call__(self, subgraph: str) -> None:
        self.reached.release()
        assert self._open.wait(SOON), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()

    def await_one(self) -> None:
        assert self.reached.acquire(timeout=SOON), "no subgraph started"


# ---- results ----


def test_submitted_job_gives_what_onnxruntime_gives(bundles: Bundles, by_hand: ByHand) -> None:
    with engine(bundles, {"name": "scale"}) as e:
        results = [e.submit("scale", {"x": X * i}).result(SOON) for i in range(20)]
    for i, r in enumerate(results):
        assert (r.task, r.index, r.outcome, r.cause) == ("scale", i, "met", "")
        np.testing.assert_allclose(r.outputs["y"], by_hand("scale", x=X * i)["y"], rtol=1e-6)
        assert list(r.outputs) == ["y"]


def test_jobs_submitted_at_once_keep_their_own_tensors(bundles: Bundles, by_hand: ByHand) -> None:
    with engine(bundles, {"name": "scale"}) as e:
        futures = [e.submit("scale", {"x": X + i}) for i in range(50)]
        outputs = [f.result(SOON).outputs["y"] for f in futures]
    for i, y in enumerate(outputs):
        np.testing.assert_allclose(y, by_hand("scale", x=X + i)["y"], rtol=1e-6)


def test_caller_may_overwrite_its_array_after_submit(bundles: Bundles, by_hand: ByHand) -> None:
    gate = Gate()
    with engine(bundles, {"name": "scale"}, providers={CpuProvider.name: Provided(gate)}) as e:
        mine = X.copy()
        future = e.submit("scale", {"x": mine})
        mine[:] = 99
        gate.open()
        np.testing.assert_allclose(future.result(SOON).outputs["y"], by_hand("scale", x=X)["y"], rtol=1e-6)


def test_result_tells_times_in_order_and_the_deadline(bundles: Bundles) -> None:
    with engine(bundles, {"name": "scale"}) as e:
        r = e.submit("scale", {"x": X}, deadline_ms=5000).result(SOON)
    assert r.start_ns is not None and r.deadline_ns is not None
    assert 0 <= r.release_ns <= r.start_ns <= r.finish_ns
    assert r.deadline_ns - r.release_ns == 5_000_000_000
    assert r.latency_ms == (r.finish_ns - r.release_ns) / 1e6


def test_job_that_cannot_meet_its_deadline_says_so_at_once(bundles: Bundles) -> None:
    with engine(bundles, {"name": "scale"}, policy="edf") as e:
        r = e.submit("scale", {"x": X}, deadline_ms=0.001).result(SOON)
    assert (r.outcome, r.cause, r.outputs, r.start_ns) == ("dropped", "cannot finish in time", {}, None)


def test_carried_state_evolves_as_by_hand(bundles: Bundles, by_hand: ByHand) -> None:
    inputs = [np.array([[i, -i]], np.float32) for i in range(1, 9)]
    with engine(bundles, {"name": "accumulate", "carry": {"new": "state"}}) as e:
        futures = [e.submit("accumulate", {"x": x}) for x in inputs]
        got = [f.result(SOON).outputs for f in futures]
    state = np.zeros((1, 2), np.float32)
    for x, outputs in zip(inputs, got, strict=True):
        wanted = by_hand("accumulate", x=x, state=state)
        np.testing.assert_array_equal(outputs["y"], wanted["y"])
        state = wanted["new"]


def test_state_stays_what_it_was_when_a_job_fails(bundles: Bundles, by_hand: ByHand) -> None:
    broken = threading.Event()

    def before(subgraph: str) -> None:
        if broken.is_set():
            raise DeviceError("it overheated")

    x = np.ones((1, 2), np.float32)
    with engine(bundles, {"name": "accumulate", "carry": {"new": "state"}}, providers={CpuProvider.name: Provided(before)}) as e:
        first = e.submit("accumulate", {"x": x}).result(SOON)
        broken.set()
        second = e.submit("accumulate", {"x": x}).result(SOON)
        broken.clear()
        third = e.submit("accumulate", {"x": x}).result(SOON)
    assert (second.outcome, second.cause, second.outputs) == ("failed", "it overheated", {})
    np.testing.assert_array_equal(third.outputs["y"], x + first.outputs["new"])


def test_window_and_glue_give_the_child_what_one_computes_by_hand(
    bundles: Bundles, by_hand: ByHand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ourglue.py").write_text("def shifted(arrays):\n    return {n: a + 1 for n, a in arrays.items()}\n")
    monkeypatch.syspath_prepend(tmp_path)
    tasks = (
        # far apart: a job that still runs would leave a gap
        {"name": "frames", "period_ms": 40, "deadline_ms": 10_000, "inputs": "random:3"},
        {
            "name": "total",
            "after": "frames",
            "feed": {"w": "frames.f"},
            "window": {"frames": 6, "hop": 2},
            "glue": "ourglue:shifted",
        },
    )
    e = engine(bundles, *tasks, seconds=0.4)
    stream = e.results("total")
    with e:
        e.wait()
    source = make_source("random:3", bundles["frames"].manifest.inputs)
    results = sorted((stream.get() for _ in range(stream.qsize())), key=lambda r: r.index)
    assert [(r.index, r.outcome) for r in results] == [(i, "met") for i in range(10)]
    for r in results:
        made = [by_hand("frames", x=source.read(i, 0)["x"])["f"] + 1 for i in range(r.index - 2, r.index + 1)]
        np.testing.assert_allclose(r.outputs["s"], by_hand("total", w=np.concatenate(made, axis=1))["s"], rtol=1e-5)


def test_results_streams_every_end_of_a_task(bundles: Bundles) -> None:
    e = engine(bundles, {"name": "scale", "period_ms": 10}, {"name": "frames", "period_ms": 10}, seconds=0.1)
    stream = e.results("scale")
    with e:
        e.wait()
    found = [stream.get() for _ in range(stream.qsize())]
    assert all(isinstance(r, JobResult) and r.task == "scale" for r in found)
    assert sorted(r.index for r in found) == list(range(10))
    assert e.results("scale") is stream


def test_futures_report_to_callbacks_away_from_the_workers(bundles: Bundles) -> None:
    called: list[str] = []
    done = threading.Event()

    def callback(future: Any) -> None:
        called.append(threading.current_thread().name)
        if len(called) == 2:
            done.set()

    gate = Gate()
    with engine(bundles, {"name": "scale"}, providers={CpuProvider.name: Provided(gate)}) as e:
        future = e.submit("scale", {"x": X})
        future.add_done_callback(callback)
        gate.open()
        future.result(SOON)
        future.add_done_callback(callback)  # one that comes late is called too
        assert done.wait(SOON)
    assert all("callbacks" in name for name in called), called


# ---- what it refuses ----


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ({}, "'x' is missing"),
        ({"z": X}, "no input 'z'"),
        ({"x": X, "z": X}, "no input 'z'"),
        ({"x": X[:1]}, r"shape \(1, 3\)"),
        ({"x": X.astype(np.float64)}, "float64"),
        ({"x": X.astype(np.int32)}, "int32"),
    ],
)
def test_inputs_that_do_not_fit_are_a_user_error(bundles: Bundles, inputs: dict[str, Any], what: str) -> None:
    with engine(bundles, {"name": "scale"}) as e:
        with pytest.raises(UserError, match=what):
            e.submit("scale", inputs)
        assert e.submit("scale", {"x": X}).result(SOON).index == 0


def test_carried_input_cannot_be_submitted(bundles: Bundles) -> None:
    with engine(bundles, {"name": "accumulate", "carry": {"new": "state"}}) as e, pytest.raises(UserError, match="'state'"):
        e.submit("accumulate", {"x": np.ones((1, 2), np.float32), "state": np.ones((1, 2), np.float32)})


def test_misuse_of_the_engine_is_a_user_error(bundles: Bundles) -> None:
    e = engine(bundles, {"name": "scale"}, {"name": "frames", "period_ms": 50})
    with pytest.raises(UserError, match="not running"):
        e.submit("scale", {"x": X})
    with e:
        for match, misuse in (
            ("no task 'x'", lambda: e.submit("x")),
            ("releases its own", lambda: e.submit("frames")),
            ("deadline_ms", lambda: e.submit("scale", {"x": X}, deadline_ms=0)),
            ("deadline_ms", lambda: e.submit("scale", {"x": X}, deadline_ms=float("nan"))),
            ("no task 'x'", lambda: e.results("x")),
            ("seconds", e.wait),
        ):
            with pytest.raises(UserError, match=match):
                misuse()


def test_onnx_file_is_refused_and_the_command_named(bundles: Bundles, models: dict[str, Path]) -> None:
    made = parse_workload(toml({"name": "scale", "model": str(models["scale"])}))
    with pytest.raises(UserError, match="edgeengine build"):
        Engine(made, real_plan(made, bundles))


def test_plan_of_another_bundle_is_refused(bundles: Bundles) -> None:
    other = bundles["scale"].path.with_name("scale in one.edge")
    made = parse_workload(toml({"name": "scale", "model": str(other)}))
    with pytest.raises(UserError, match="another build"):
        Engine(made, real_plan(made, bundles))


def test_plan_of_another_workload_is_refused(bundles: Bundles) -> None:
    one = parse_workload(toml({"name": "scale", "model": str(bundles["scale"].path)}))
    two = parse_workload(toml({"name": "frames", "model": str(bundles["frames"].path)}))
    with pytest.raises(UserError, match="another version"):
        Engine(two, real_plan(one, bundles))


@pytest.mark.parametrize(
    ("task", "what"),
    [
        ({"name": "scale", "carry": {"y": "nothing"}}, "carry.*'nothing'"),
        ({"name": "scale", "carry": {"nothing": "x"}}, "carry.*'nothing'"),
        ({"name": "scale", "period_ms": 9, "inputs": "source:camera"}, "no source 'camera'"),
        ({"name": "scale", "period_ms": 9, "inputs": "noise"}, "random:SEED"),
        ({"name": "total", "after": "frames", "feed": {"nothing": "frames.f"}}, "feed.*'nothing'"),
        ({"name": "total", "after": "frames", "feed": {"w": "frames.nothing"}}, "feed.w.*'nothing'"),
        ({"name": "total", "after": "frames", "feed": {"w": "frames.f"}, "glue": "numpy:nothing"}, "glue.*numpy:nothing"),
        ({"name": "total", "after": "frames", "feed": {"w": "frames.f"}, "glue": "no_such_module:f"}, "glue.*no_such_module"),
    ],
)
def test_task_that_does_not_fit_its_model_is_refused_before_it_runs(bundles: Bundles, task: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        engine(bundles, {"name": "frames", "period_ms": 10}, task)


# ---- what it survives ----


class Camera:
    """Fails for every third job; remembers where it was read."""

    def __init__(self) -> None:
        self.affinity: set[frozenset[int]] = set()

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        self.affinity.add(frozenset(os.sched_getaffinity(0)))
        if index % 3 == 2:
            raise OSError("the camera is gone")
        return {"x": X}


def test_source_that_fails_ends_its_job_and_no_more(bundles: Bundles) -> None:
    e = engine(bundles, {"name": "scale", "period_ms": 10, "inputs": "source:camera"}, seconds=0.12, sources={"camera": Camera()},
               keep_jobs=True)  # fmt: skip
    with e:
        e.wait()
    ends = {j.index: (j.outcome, j.cause) for j in e.jobs}
    assert ends == {i: ("failed", "OSError: the camera is gone") if i % 3 == 2 else ("met", "") for i in range(12)}


class Port:
    """A source that must be open to be read, and a sink."""

    def __init__(self, fault: bool = False) -> None:
        self.told: list[str] = []
        self.results: list[JobResult] = []
        self.fault = fault

    def open(self) -> None:
        if self.fault:
            raise DeviceError("no such port")
        self.told.append("open")

    def close(self) -> None:
        self.told.append("close")

    def read(self, index: int, release_ns: int) -> dict[str, np.ndarray]:
        assert self.told == ["open"]
        return {"x": X}

    def submit(self, item: JobResult) -> None:
        assert self.told == ["open"]
        self.results.append(item)


def test_sources_and_sinks_are_open_while_the_engine_runs(bundles: Bundles) -> None:
    task = {"name": "scale", "period_ms": 10, "deadline_ms": 10_000, "inputs": "source:port"}
    port, sink = Port(), Port()
    with engine(bundles, task, seconds=0.05, sources={"port": port}, sinks={"scale": sink}) as e:
        e.wait()
    assert port.told == sink.told == ["open", "close"]
    assert [(r.index, r.outcome) for r in sink.results] == [(i, "met") for i in range(5)]
    assert sink.results[0].outputs["y"].shape == (2, 3)
    broken = Port(fault=True)
    with pytest.raises(DeviceError, match="no such port"), engine(bundles, task, sources={"port": port}, sinks={"scale": broken}):
        pass
    assert port.told == ["open", "close"] * 2
    with pytest.raises(UserError, match="sinks names no task 'other'; known: scale"):
        engine(bundles, task, sources={"port": port}, sinks={"other": sink})


def test_workers_are_pinned_to_the_core_of_their_processor(bundles: Bundles) -> None:
    camera = Camera()
    e = engine(bundles, {"name": "scale", "period_ms": 10, "inputs": "source:camera"}, seconds=0.1, sources={"camera": camera})
    with e:
        e.wait()
    assert camera.affinity <= {frozenset({c}) for c in os.sched_getaffinity(0)}


@pytest.mark.parametrize(
    ("error", "cause"), [(DeviceError("it overheated"), "it overheated"), (RuntimeError("a bug"), "RuntimeError: a bug")]
)
def test_provider_that_fails_ends_the_job_with_its_cause(bundles: Bundles, error: Exception, cause: str) -> None:
    failing = [True]

    def before(subgraph: str) -> None:
        if failing.pop() if failing else False:
            raise error

    with engine(bundles, {"name": "scale"}, providers={CpuProvider.name: Provided(before)}) as e:
        failed = e.submit("scale", {"x": X}).result(SOON)
        fine = e.submit("scale", {"x": X}).result(SOON)
    assert (failed.outcome, failed.cause, failed.outputs) == ("failed", cause, {})
    assert fine.outcome == "met"


def test_waiting_job_is_cancelled_at_once_and_a_running_one_when_its_subgraph_ends(bundles: Bundles) -> None:
    gate = Gate()
    with engine(bundles, {"name": "scale"}, providers={CpuProvider.name: Provided(gate)}) as e:
        cores = len(e._plan.processors)
        running = [e.submit("scale", {"x": X}) for _ in range(cores)]
        for _ in range(cores):
            gate.await_one()
        waiting = e.submit("scale", {"x": X})
        assert waiting.cancel()
        r = waiting.result(SOON)
        assert (r.outcome, r.cause, r.start_ns) == ("dropped", "cancelled", None)
        assert running[0].cancel()
        assert not running[0].done()
        gate.open()
        assert [f.result(SOON).outcome for f in running] == ["dropped", *["met"] * (cores - 1)]
        assert not running[0].cancel()


def test_leaving_under_load_ends_every_job_and_thread_and_restores_the_interpreter(bundles: Bundles) -> None:
    interval, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    provider, gate = Provided(lambda subgraph: None), Gate()
    provider._before = gate
    with engine(bundles, {"name": "scale"}, {"name": "frames", "period_ms": 1}, providers={CpuProvider.name: provider}) as e:
        assert sys.getswitchinterval() < interval
        futures = [e.submit("scale", {"x": X}) for _ in range(30)]
        gate.await_one()
        gate.open()
    ends = {f.result(0).outcome for f in futures}
    assert ends <= {"met", "dropped"}
    assert {f.result(0).cause for f in futures if f.result(0).outcome == "dropped"} <= {"cancelled"}
    assert not [t for t in threading.enumerate() if t.name.startswith("edgeengine")]
    assert sys.getswitchinterval() == interval
    assert gc.get_freeze_count() == frozen
    assert provider.closed


def test_error_within_the_block_comes_through(bundles: Bundles) -> None:
    with pytest.raises(ZeroDivisionError), engine(bundles, {"name": "scale"}) as e:
        e.submit("scale", {"x": X})
        raise ZeroDivisionError
    assert sys.getswitchinterval() == pytest.approx(0.005)


def test_nothing_is_accepted_after_leaving(bundles: Bundles) -> None:
    with engine(bundles, {"name": "scale"}) as e:
        e.submit("scale", {"x": X}).result(SOON)
    with pytest.raises(UserError, match="not running"):
        e.submit("scale", {"x": X})


class Mad(Fifo):
    name = "mad"

    def decide(self, view: Any, now: int) -> list[Any]:
        raise ZeroDivisionError("in a policy")


def test_policy_that_breaks_down_ends_the_run_with_its_reason(bundles: Bundles) -> None:
    e = engine(bundles, {"name": "scale", "period_ms": 10}, policy=Mad(), seconds=600)
    with pytest.raises(InternalError, match="in a policy"), e:
        e.wait()


def test_log_of_a_real_run_replays_in_a_fresh_scheduler(bundles: Bundles) -> None:
    tasks: list[dict[str, Any]] = [
        {"name": "scale", "period_ms": 3, "deadline_ms": 3},
        {"name": "frames", "period_ms": 4, "stale": "latest"},
        {"name": "total", "after": "frames", "feed": {"w": "frames.f"}, "window": {"frames": 6, "hop": 2}, "probability": 0.5},
        {"name": "accumulate", "rate_hz": 90, "carry": {"new": "state"}},
        {"name": "step", "of": "scale", "kind": "train"},
    ]
    with engine(bundles, *tasks, policy="edf", seconds=0.3, seed=5) as e:
        e.wait()
    assert len(e.log) > 300
    assert replay(e._workload, e._plan, Edf(), e.log, seed=5) == [line.actions for line in e.log]
    times = [line.event.at_ns for line in e.log]
    assert times == sorted(times)


def test_engine_takes_files(bundles: Bundles, tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_bytes(toml({"name": "scale", "model": str(bundles["scale"].path)}))
    made = parse_workload(file.read_bytes(), str(file))
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(real_plan(made, bundles)))
    with Engine(file, tmp_path / "plan.json") as e:
        assert e.submit("scale", {"x": X}).result(SOON).outcome in ("met", "late")
