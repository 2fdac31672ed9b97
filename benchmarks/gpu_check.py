"""`make gpu-check`: is the GPU of this machine found, honest, worth its transfers? Under five minutes; exit 4 without one.

Five steps: what is found, what falls back, what a tensor's way there and back costs by size, a CPU+GPU plan live in one engine,
and its outputs against the whole model on the CPU (one thread, optimizations off).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from edgeengine.bundle import Bundle
from edgeengine.devices import usable_cores
from edgeengine.devices.providers import Provider, load_providers
from edgeengine.devices.providers.ort import CPU
from edgeengine.engine import Engine
from edgeengine.errors import DeviceError, EdgeEngineError
from edgeengine.graph import build_bundle
from edgeengine.spec import Latency, Placement, Plan, Processor, Step, TaskPlan
from edgeengine.spec.plan import SCHEMA
from edgeengine.workload import Task, Workload

SIZES = tuple(1 << k for k in range(12, 27, 2))  # bytes: 4 KB to 64 MB
REPEATS = 20
TOLERANCE = 1e-3  # of the output range, for float32 (docs/design.md, Exactness)
CHANNELS, SIDE, JOBS = 32, 64, 20


def main(providers: Mapping[str, Provider] | None = None) -> int:
    """Runs the check and prints it. Returns 0, or the exit code of what went wrong, said in one line."""
    given = dict(providers) if providers is not None else load_providers()
    try:
        with tempfile.TemporaryDirectory() as folder:
            _check(given, Path(folder))
    except EdgeEngineError as e:
        print(f"gpu-check: {e}", file=sys.stderr)
        return e.exit_code
    finally:
        for provider in given.values():
            provider.close()
    return 0


def _check(providers: dict[str, Provider], folder: Path) -> None:
    cores = usable_cores()
    found = [p for provider in providers.values() for p in provider.discover(cores)]
    gpu = _usable_gpu(found)
    cpu = next(p for p in found if p.provider == CPU)
    print(f"found    {gpu.name} ({gpu.provider}), called from core {gpu.host_core}")
    bundle = build_bundle(_convnet(folder / "net.onnx"), folder / "net.edge", parts=3)
    for s in bundle.manifest.subgraphs:
        step = Step(s.name, s.start, s.stop, gpu.name, Latency.constant(1))
        print(f"takes    {s.name}: {_told(providers[gpu.provider].load(bundle, step, gpu).placement)}")
    for size in SIZES:
        ms = _transfer_ms(providers[gpu.provider], gpu, folder, size)
        print(f"transfer {size / 1024:8.0f} KB there, one pass, and back: {ms:.3f} ms")
    worst = _live(providers, bundle, gpu, cpu, folder / "net.onnx")
    print(f"live     {JOBS} jobs, GPU-CPU-GPU in one engine; outputs differ from the CPU's by {worst:.2g} of their range")


def _usable_gpu(found: list[Processor]) -> Processor:
    gpus = [p for p in found if p.kind == "gpu"]
    for p in gpus:
        if p.usable and not p.emulated:
            return p
    reasons = "; ".join(f"{p.name}: {p.reason}" for p in gpus) or "no installed ONNX Runtime package offers one"
    raise DeviceError(f"no GPU is usable on this machine, so nothing was checked ({reasons})")


def _told(placement: Placement | None) -> str:
    if placement is None:
        return "the provider does not tell"
    shares = ", ".join(f"{n} nodes on {provider}" for provider, n in placement.nodes.items())
    fallen = "; ".join(f"{f.op} fell back{': ' + f.reason if f.reason else ''}" for f in placement.fallback)
    return f"{shares}, {placement.copies} copies" + (f" ({fallen})" if fallen else "")


def _transfer_ms(provider: Provider, gpu: Processor, folder: Path, size: int) -> float:
    """Median latency of y = relu(x) on `size` bytes: little but the copies."""
    file = folder / f"relu{size}.onnx"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size // 4]) for n in "xy"]
    _save(file, [helper.make_node("Relu", ["x"], ["y"])], ends, [])
    bundle = build_bundle(file, folder / f"relu{size}.edge", parts=1)
    whole = bundle.manifest.whole
    executable = provider.load(bundle, Step(whole.name, 0, whole.stop, gpu.name, Latency.constant(1)), gpu)
    x = np.random.default_rng(0).standard_normal(size // 4).astype(np.float32)
    executable.run({"x": x})
    samples = []
    for _ in range(REPEATS):
        begun = time.perf_counter_ns()
        executable.run({"x": x})
        samples.append(time.perf_counter_ns() - begun)
    return float(np.median(samples)) / 1e6


def _live(providers: dict[str, Provider], bundle: Bundle, gpu: Processor, cpu: Processor, model: Path) -> float:
    """The greatest difference from the reference, as a share of the output range. Raises DeviceError past the tolerance."""
    chain = [s for s in bundle.manifest.subgraphs if s.stop == s.start + 1]
    where = (gpu, cpu, gpu)
    steps = tuple(Step(s.name, s.start, s.stop, p.name, Latency.constant(1_000_000)) for s, p in zip(chain, where, strict=True))
    workload = Workload((Task("net", model=str(bundle.path), deadline_ms=60_000.0),))
    plan = Plan(SCHEMA, "here", workload.sha256, (gpu, cpu), (TaskPlan("net", bundle.hash, len(chain), steps),))
    reference, worst = _reference(model), 0.0
    with Engine(workload, plan, providers=providers, bundles={"net": bundle}) as engine:
        for seed in range(JOBS):
            x = np.random.default_rng(seed).standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)
            result = engine.submit("net", {"x": x}).result(60)
            if result.outcome != "met":
                raise DeviceError(f"job {seed} ended as {result.outcome} ({result.cause})")
            expected = reference.run(None, {"x": x})[0]
            worst = max(worst, float(np.abs(result.outputs["y"] - expected).max() / np.ptp(expected)))
    if not worst <= TOLERANCE:
        raise DeviceError(f"{gpu.name} answers wrong: its outputs differ by {worst:.2g} of the range, {TOLERANCE:g} is allowed")
    return worst


def _reference(model: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(model), options, providers=[CPU])


def _convnet(file: Path) -> Path:
    """Three times convolution and Relu, seeded."""
    rng = np.random.default_rng(1)
    shapes = [(CHANNELS, 3, 3, 3), (CHANNELS, CHANNELS, 3, 3), (CHANNELS, CHANNELS, 3, 3)]
    weights = [numpy_helper.from_array((rng.standard_normal(s) * 0.1).astype(np.float32), f"w{i}") for i, s in enumerate(shapes)]
    names = ["x", "a", "b", "y"]
    nodes = []
    for i in range(3):
        nodes.append(helper.make_node("Conv", [names[i], f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [names[i + 1]]))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, SIDE, SIDE]) for n, c in (("x", 3), ("y", CHANNELS))]
    return _save(file, nodes, ends, weights)


def _save(file: Path, nodes: list[onnx.NodeProto], ends: list[onnx.ValueInfoProto], weights: list[onnx.TensorProto]) -> Path:
    graph = helper.make_graph(nodes, file.stem, ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


if __name__ == "__main__":
    sys.exit(main())
