"""One engine, two providers: a model runs NPU-CPU-NPU, cut at what the NPU takes, its outputs those of the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from edgeengine.bundle import Bundle
from edgeengine.clock import MonotonicClock
from edgeengine.devices import usable_cores
from edgeengine.devices.providers import Provider, Strict
from edgeengine.devices.providers.accelerator import Accelerator
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.devices.providers.qnn import QNN as ROW
from edgeengine.engine import Engine
from edgeengine.events import Started
from edgeengine.graph import build_bundle, child
from edgeengine.scheduling.policies.fifo import Fifo
from edgeengine.spec import Latency, Placement, Plan, Processor, Step, SubgraphSpec, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.testing import FakeGpu
from edgeengine.workload import parse_workload
from tests.builders import toml
from tests.emulator import CPU, NPU, QNN, convnet, image, needs_emulator

SOON = 20.0


def live(bundle: Bundle, where: dict[str, Processor], providers: dict[str, Provider]) -> tuple[dict[int, np.ndarray], list[str]]:
    """Three jobs through the finest chain, each part on its processor; outputs by image and where the parts ran."""
    chain = [s for s in bundle.manifest.subgraphs if s.stop == s.start + 1]
    steps = tuple(Step(s.name, s.start, s.stop, where[s.name].name, Latency.constant(1_000_000)) for s in chain)
    tasks = parse_workload(toml({"name": "net", "model": str(bundle.path), "deadline_ms": 60_000}))
    processors = tuple(dict.fromkeys(where.values()))
    plan = Plan(SCHEMA, "here", tasks.sha256, processors, (TaskPlan("net", bundle.hash, len(chain), steps),))
    with Engine(
        tasks, plan, policy=Fifo(early_drop=False), providers=providers, bundles={"net": bundle}, keep_log=True
    ) as engine:
        futures = {seed: engine.submit("net", {"x": image(seed)}) for seed in (1, 2, 3)}
        results = {seed: future.result(SOON) for seed, future in futures.items()}
        log = engine.log
    assert [(r.outcome, r.cause) for r in results.values()] == [("met", "")] * 3
    ran = [line.event.processor for line in log if isinstance(line.event, Started)]
    return {seed: r.outputs["y"] for seed, r in results.items()}, ran


def reference(model: Path, seed: int) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return np.asarray(ort.InferenceSession(str(model), options, providers=[CPU]).run(None, {"x": image(seed)})[0])


@pytest.fixture
def _in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("shapes", "build"):
        monkeypatch.setattr(
            f"edgeengine.graph.{module}.run_in_child", lambda job, values, result, what: child.execute(job, values)
        )


@needs_emulator
@pytest.mark.usefixtures("_in_process")
def test_npu_cpu_npu_live(tmp_path: Path) -> None:
    npu_provider, cpu_provider = Accelerator(ROW, cache=tmp_path / "cache"), CpuProvider()
    cores = usable_cores()
    npu = next(p for p in npu_provider.discover(cores) if p.name == NPU)
    cpu = cpu_provider.discover(cores)[0]

    def placement(bundle: Bundle, s: SubgraphSpec) -> Placement:
        placed = npu_provider.load(bundle, Step(s.name, s.start, s.stop, NPU, Latency.constant(1)), npu).placement
        assert placed is not None
        return placed

    def left(bundle: Bundle) -> dict[str, str]:
        (s,) = bundle.manifest.subgraphs
        return {name: f.reason for f in placement(bundle, s).fallback for name in f.nodes}

    model = convnet(tmp_path / "erf.onnx", middle="Erf")
    bundle = build_bundle(model, tmp_path / "erf.edge", left=left)
    chain = [s for s in bundle.manifest.subgraphs if s.stop == s.start + 1]
    assert [s.op_counts for s in chain] == [{"Conv": 1}, {"Erf": 1}, {"Conv": 1, "Relu": 1}]
    # Verified: what the cut gives to the NPU runs there whole, and what it leaves does not.
    assert [placement(bundle, s).whole for s in chain] == [True, False, True]
    assert [set(placement(bundle, s).nodes) for s in chain] == [{QNN}, {CPU}, {QNN}]
    providers: dict[str, Provider] = {QNN: Strict(npu_provider), CPU: Strict(cpu_provider)}
    outputs, ran = live(bundle, dict(zip((s.name for s in chain), (npu, cpu, npu), strict=True)), providers)
    assert sorted(ran) == sorted([NPU, cpu.name, NPU] * 3)
    for seed, y in outputs.items():
        expected = reference(model, seed)
        assert np.abs(y - expected).max() <= 1e-3 * np.ptp(expected)


def test_cpu_and_fake_gpu_live(bundles: dict[str, Bundle], by_hand: object) -> None:
    """The same with the GPU that is not there, so that the path is proven wherever the tests run."""
    gpu_provider = FakeGpu(MonotonicClock(), compute_ns=100_000)
    cores = usable_cores()
    gpu, cpu = gpu_provider.discover(cores)[0], CpuProvider().discover(cores)[0]
    bundle = bundles["scale"]
    chain = [s for s in bundle.manifest.subgraphs if s.stop == s.start + 1]
    steps = tuple(Step(s.name, s.start, s.stop, (gpu, cpu)[i % 2].name, Latency.constant(1_000_000)) for i, s in enumerate(chain))
    tasks = parse_workload(toml({"name": "scale", "model": str(bundle.path), "deadline_ms": 60_000}))
    plan = Plan(SCHEMA, "here", tasks.sha256, (gpu, cpu), (TaskPlan("scale", bundle.hash, len(chain), steps),))
    providers: dict[str, Provider] = {gpu_provider.name: gpu_provider, CPU: CpuProvider()}
    x = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
    with Engine(tasks, plan, policy=Fifo(early_drop=False), providers=providers, bundles={"scale": bundle}) as engine:
        y = engine.submit("scale", {"x": x}).result(SOON).outputs["y"]
    np.testing.assert_array_equal(y, by_hand("scale", x=x)["y"])  # type: ignore[operator]
    assert gpu_provider.runs == 2
