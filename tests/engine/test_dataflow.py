"""Tensors between tasks: feeds wait as long as their jobs, windows hold the right frames, priming starts from the state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine.dataflow import LAGGARDS, DataFlow
from edgeengine.engine.windows import SLACK_JOBS, FrameWindow
from edgeengine.errors import UserError
from edgeengine.io import make_source
from edgeengine.spec import TensorSpec
from edgeengine.workload import Window, parse_workload
from tests.builders import toml
from tests.engine.test_engine import SOON, Gate, Provided, X, engine

Bundles = dict[str, Bundle]
LATENCY = {"latency_ms": {"p": 1.0}}


def spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, "float32", shape)


def flow(child: dict[str, Any], inputs: list[TensorSpec], outputs: tuple[str, ...] = ("f",)) -> DataFlow:
    """A parent "p" with these outputs, and its child "c"."""
    child = {"name": "c", "after": "p", "feed": {i.name: f"p.{o}" for i, o in zip(inputs, outputs, strict=True)}} | child
    tasks = parse_workload(toml({"name": "p", "period_ms": 10} | LATENCY, child | LATENCY))
    bundles: Any = {
        "p": SimpleNamespace(manifest=SimpleNamespace(shapes={}, inputs=(), outputs=[spec(o, 1) for o in outputs])),
        "c": SimpleNamespace(manifest=SimpleNamespace(shapes={}, inputs=inputs, outputs=())),
    }
    return DataFlow(tasks, bundles, {"p": None, "c": None})


def ended(task: str, index: int, outcome: str = "dropped", cause: str = "", start_ns: int | None = None) -> Any:
    task_ns = SimpleNamespace(name=task)
    return SimpleNamespace(task=task_ns, index=index, outcome=outcome, cause=cause, start_ns=start_ns, data=None)


def frames(*values: float, width: int = 4) -> np.ndarray:
    return np.repeat(np.array(values, np.float32)[None, :, None], width, axis=2)


# ---- feeds ----


@pytest.mark.parametrize("window", [None, {"frames": 4, "hop": 2}])
def test_feeds_of_many_waiting_jobs_are_all_kept(window: dict[str, int] | None) -> None:
    data = flow({} if window is None else {"window": window}, [spec("x", 1, 2 if window is None else 4, 4)])
    for i in range(500):
        data.finish("p", i, {"f": frames(i, i)})
    child = data.tasks["c"]
    for i in range(1, 500):
        wanted = frames(i, i) if window is None else frames(i - 1, i - 1, i, i)
        np.testing.assert_array_equal(child.gather(i, 0)["x"], wanted)


def test_feeds_of_jobs_that_are_not_drawn_do_not_pile_up() -> None:
    data = flow({"probability": 0.5}, [spec("x", 1, 2, 4)])
    child = data.tasks["c"]
    for i in range(1000):
        data.finish("p", i, {"f": frames(i, i)})
        if i % 7 == 0:
            assert child.gather(i, 0)["x"][0, 0, 0] == i
    assert len(child.feeds) <= LAGGARDS + 8
    for i in range(1001, 2000):  # none starts any more, but those that end tell that older ones will not come
        data.finish("p", i, {"f": frames(i, i)})
        if i % 7 == 0:
            data.forget(ended("c", i))
    assert len(child.feeds) <= LAGGARDS + 8


def test_rejected_newer_jobs_do_not_take_the_feed_of_one_that_waits() -> None:
    data = flow({"probability": 0.5}, [spec("x", 1, 2, 4)])
    for i in range(500):
        data.finish("p", i, {"f": frames(i, i)})
        if i > 0:
            data.forget(ended("c", i, "rejected"))
    assert data.tasks["c"].gather(0, 0)["x"].shape == (1, 2, 4)


def test_jobs_that_end_before_their_parents_leave_nothing() -> None:
    data = flow({"period_ms": 10.0}, [spec("x", 1, 2, 4)])
    child = data.tasks["c"]
    for i in range(300):
        data.forget(ended("c", i))
        if i % 2:
            data.finish("p", i, {"f": frames(i, i)})
        data.forget(ended("p", i))
    assert not child.feeds and not child._ended_early


def test_child_blocked_for_hundreds_of_parent_jobs_still_gets_each_feed(bundles: Bundles) -> None:
    """First come, first served: all parents, submitted while nothing runs, go before the first child."""
    gate, parents = Gate(), 150
    child = {
        "name": "second",
        "of": "scale",
        "after": "frames",
        "feed": {"x": "frames.f"},
        "glue": "tests.engine.test_dataflow:crop",
    }
    with engine(bundles, {"name": "frames"}, child, providers={CpuProvider.name: Provided(gate)}) as e:
        stream = e.results("second")
        futures = [e.submit("frames", {"x": np.full((1, 2, 4), i, np.float32)}) for i in range(parents)]
        gate.open()
        for f in futures:
            assert f.result(SOON).outcome == "met"
        results = [stream.get(timeout=SOON) for _ in range(parents)]
    assert {(r.outcome, r.cause) for r in results} == {("met", "")}


def crop(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"x": arrays["x"][0, :, :3]}


# ---- windows ----


def test_one_frame_per_job_is_one_frame() -> None:
    data = flow({"window": {"frames": 3, "hop": 1}}, [spec("x", 1, 3, 32)])
    for i in range(5):
        data.finish("p", i, {"f": frames(i, width=32)})
    np.testing.assert_array_equal(data.tasks["c"].gather(4, 0)["x"], frames(2, 3, 4, width=32))


def test_each_input_has_a_window_of_its_own() -> None:
    data = flow({"window": {"frames": 4, "hop": 2}}, [spec("x", 1, 4, 4), spec("z", 4, 1, 1, 8)], ("f", "g"))
    for i in range(3):
        data.finish("p", i, {"f": frames(i, i), "g": frames(10 + i, 10 + i, width=8)})
    got = data.tasks["c"].gather(2, 0)
    np.testing.assert_array_equal(got["x"], frames(1, 1, 2, 2))
    np.testing.assert_array_equal(got["z"], frames(11, 11, 12, 12, width=8).reshape(4, 1, 1, 8))


def test_parents_that_finish_out_of_order_give_frames_in_order() -> None:
    data = flow({"window": {"frames": 6, "hop": 2}}, [spec("x", 1, 6, 4)])
    for i in (0, 3, 1, 2):
        data.finish("p", i, {"f": frames(i, i)})
    child = data.tasks["c"]
    np.testing.assert_array_equal(child.gather(3, 0)["x"], frames(1, 1, 2, 2, 3, 3))
    np.testing.assert_array_equal(child.gather(2, 0)["x"], frames(0, 0, 1, 1, 2, 2))


def test_parents_finishing_at_the_same_time_lose_no_frame() -> None:
    data = flow({"window": {"frames": 200, "hop": 1}}, [spec("x", 1, 200, 4)])
    together = threading.Barrier(4)

    def work(first: int) -> None:
        together.wait(SOON)
        for i in range(first, 200, 4):
            data.finish("p", i, {"f": frames(i)})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(data.tasks["c"].gather(199, 0)["x"], frames(*range(200)))


def test_window_keeps_what_waiting_jobs_need_and_no_more() -> None:
    window = FrameWindow(Window(4, 2), spec("x", 1, 4, 4), "c")
    for i in range(100):
        window.push(i, frames(i, i, i))
        window.trim(min(i, 50))
    np.testing.assert_array_equal(window.newest(50), frames(49, 49, 50, 50)[0])
    window.trim(99)
    assert len(window._frames) == len(window._order) == 2 * 2 + SLACK_JOBS


@pytest.mark.parametrize(("made", "what"), [((1, 1, 4), "1 frames, hop says 2"), ((1, 2, 5), "a frame has shape")])
def test_frames_that_do_not_fit_fail_the_child(made: tuple[int, ...], what: str) -> None:
    data = flow({"window": {"frames": 4, "hop": 2}}, [spec("x", 1, 4, 4)])
    data.finish("p", 0, {"f": np.zeros(made, np.float32)})
    with pytest.raises(UserError, match=what):
        data.tasks["c"].gather(0, 0)


def test_input_that_does_not_hold_the_frames_is_refused() -> None:
    with pytest.raises(UserError, match=r"'c', window: input 'x'.*not 5 frames"):
        flow({"window": {"frames": 5, "hop": 1}}, [spec("x", 1, 4, 4)])


# ---- state and sources ----


def test_priming_a_parent_with_state_starts_from_it_and_leaves_it_evolved(
    bundles: Bundles, by_hand: Callable[..., dict[str, np.ndarray]]
) -> None:
    parent = {"name": "accumulate", "period_ms": 10, "carry": {"new": "state"}, "inputs": "random:4"}
    child = {"name": "total", "after": "accumulate", "feed": {"w": "accumulate.y"}, "window": {"frames": 6, "hop": 2}}
    child["glue"] = "tests.engine.test_dataflow:widen"
    e = engine(bundles, parent, child, seconds=0.05)
    streams = e.results("accumulate"), e.results("total")
    with e:
        e.wait()
    made, totals = (sorted((s.get() for _ in range(s.qsize())), key=lambda r: r.index) for s in streams)
    assert {(r.outcome, r.cause) for r in made + totals} == {("met", "")}
    source, state = make_source("random:4", [spec("x", 1, 2)]), np.zeros((1, 2), np.float32)
    ys = {}
    for i in range(-2, 5):
        outputs = by_hand("accumulate", x=source.read(i, 0)["x"], state=state)
        ys[i], state = outputs["y"], outputs["new"]
    for m, t in zip(made, totals, strict=True):
        np.testing.assert_allclose(m.outputs["y"], ys[m.index], rtol=1e-6)
        window = np.concatenate([widen({"w": ys[i]})["w"] for i in range(t.index - 2, t.index + 1)], axis=1)
        np.testing.assert_allclose(t.outputs["s"], by_hand("total", w=window)["s"], rtol=1e-5)


def widen(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Two frames of four from one pair."""
    return {"w": np.tile(arrays["w"], (2, 2))[None]}


def test_submit_without_inputs_reads_the_task_s_source(bundles: Bundles, by_hand: Callable[..., dict[str, np.ndarray]]) -> None:
    with engine(bundles, {"name": "scale", "inputs": "random:7"}) as e:
        own = e.submit("scale").result(SOON)
        given = e.submit("scale", {"x": X}).result(SOON)
    read = make_source("random:7", bundles["scale"].manifest.inputs).read(0, 0)
    np.testing.assert_allclose(own.outputs["y"], by_hand("scale", **read)["y"], rtol=1e-6)
    np.testing.assert_allclose(given.outputs["y"], by_hand("scale", x=X)["y"], rtol=1e-6)
