"""From just before `submit` to the line after `result()`, less the time inside the run: all that the engine adds to a job.

With subgraphs that do nothing, and with a real one-layer model through ONNX Runtime. The peer makes the same two hand-offs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from time import monotonic_ns

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.bare_queue import BareQueue
from benchmarks.harness import Row
from benchmarks.stamped import CALLERS, StampedProvider, noop_engine, one_core
from edgeengine.bundle import Bundle
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.engine import Engine
from edgeengine.graph.build import build_bundle
from edgeengine.spec import Latency, Plan, Processor, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload

ROUNDS = 300
WARM_UP = 20
AIM_US = 150
SIZE = 16
ADDED = "submit -> result less run"


def run() -> list[Row]:
    processor = one_core()
    noop, real = StampedProvider(), StampedProvider(CpuProvider())
    inputs = {"x": np.zeros((1, SIZE), np.float32)}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = tiny_bundle(Path(folder))
        with (
            noop_engine(noop, processor) as empty,
            _model_engine(bundle, real, processor) as engine,
            BareQueue(processor.host_core) as queue,
        ):
            for caller, pause_s in CALLERS.items():
                samples: dict[str, list[float]] = {"no-op": [], "real model": [], "bare": []}
                for _ in range(WARM_UP + ROUNDS):
                    time.sleep(pause_s)
                    samples["no-op"].append(_added_us(empty, "single", None, noop))
                    time.sleep(pause_s)
                    samples["real model"].append(_added_us(engine, "tiny", inputs, real))
                    time.sleep(pause_s)
                    samples["bare"].append(queue.exchange()[1] / 1e3)
                bare = samples.pop("bare")[WARM_UP:]
                rows += [
                    Row(f"{ADDED}, {name}, {caller}", "us", s[WARM_UP:], AIM_US, peer="bare round trip", peer_samples=bare)
                    for name, s in samples.items()
                ]
    return rows


def _added_us(engine: Engine, task: str, inputs: dict[str, np.ndarray] | None, provider: StampedProvider) -> float:
    before_ns = monotonic_ns()
    engine.submit(task, inputs).result()
    after_ns = monotonic_ns()
    entered_ns, left_ns = provider.stamps[-1]
    return (after_ns - before_ns - (left_ns - entered_ns)) / 1e3


def _model_engine(bundle: Bundle, provider: StampedProvider, processor: Processor) -> Engine:
    whole = bundle.manifest.whole
    step = Step(whole.name, whole.start, whole.stop, processor.name, Latency.constant(50_000))
    task = TaskPlan(task="tiny", bundle=bundle.hash, segments=bundle.manifest.segments, steps=(step,))
    plan = Plan(schema=SCHEMA, device="this machine", workload="", processors=(processor,), tasks=(task,))
    workload = Workload((Task(name="tiny", model=str(bundle.path)),))
    return Engine(workload, plan, bundles={"tiny": bundle}, providers={processor.provider: provider})


def tiny_bundle(folder: Path) -> Bundle:
    """y = relu(x w), one small matrix product."""
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, SIZE])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "tiny.onnx")
    return build_bundle(folder / "tiny.onnx", folder / "tiny.edge", parts=1)
