"""What the tests build: workloads from tables and generated ones, processors that share resources, bundles without models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from edgeengine.bundle import Bundle
from edgeengine.devices import usable_cores
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.planning import plan_from_latencies
from edgeengine.spec import Latency, Manifest, Plan, Processor, Step, SubgraphSpec, TaskPlan, TensorSpec
from edgeengine.spec.bundle import SCHEMA, Exactness
from edgeengine.spec.plan import SCHEMA as PLAN_SCHEMA
from edgeengine.workload import Workload, parse_workload

MS = 1_000_000


def toml(*tasks: dict[str, Any]) -> bytes:
    """A workload file of these tables."""
    return "".join("[[task]]\n" + "".join(f"{k} = {_value(v)}\n" for k, v in t.items()) for t in tasks).encode()


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def workload(*tasks: dict[str, Any]) -> Workload:
    """Tasks that say nothing else take 1 ms on processor "p"."""
    return parse_workload(toml(*({"latency_ms": {"p": 1.0}} | t if "model" not in t else t for t in tasks)))


def processor(name: str, *resources: str, **more: Any) -> Processor:
    return Processor(name=name, kind="cpu", provider="null", resources=resources or (name,), **more)


# Two cores, both together, an accelerator, and one that is emulated on a core.
PROCESSORS = (
    processor("a", "core0"),
    processor("b", "core1"),
    processor("both", "core0", "core1"),
    processor("npu"),
    processor("emulated", "npu", "core1"),
)


def plan(tasks: Workload, processors: tuple[Processor, ...] | None = None) -> Plan:
    return plan_from_latencies(tasks, processors)


def bare_bundle(name: str, segments: int, carry: dict[str, str] | None = None, feed: tuple[str, ...] = ()) -> Bundle:
    """A bundle without files, for providers that run nothing. Its tensors are those that `carry` and `feed` name."""
    inputs = tuple(TensorSpec(n, "float32", (1,)) for n in dict.fromkeys([*(carry or {}).values(), *feed]))
    outputs = tuple(TensorSpec(n, "float32", (1,)) for n in dict.fromkeys(["y", *(carry or {})]))
    subgraphs = tuple(
        SubgraphSpec(f"s{i}_{i + 1}", f"s{i}.onnx", i, i + 1, inputs, outputs if i == segments - 1 else (), 1)
        for i in range(segments)
    )
    manifest = Manifest(
        schema=SCHEMA, name=name, source=f"{name}.onnx", source_sha256="", tools={}, ir_version=8, opset={"": 17},
        inputs=inputs, outputs=outputs, shapes={i.name: (1,) for i in inputs}, segments=segments, subgraphs=subgraphs,
        files={}, exactness=Exactness(0, True, 0.0, 0.0, 0.0),
    )  # fmt: skip
    return Bundle(Path(name), f"hash of {name}", manifest)


def with_bundles(tasks: Workload, made: Plan) -> tuple[Workload, Plan, dict[str, Bundle]]:
    """The same tasks and plan as if every task had a model: bare bundles stand in."""
    bundles = {t.name: bare_bundle(t.name, t.segments, t.carry, tuple(t.feed)) for t in tasks.tasks}
    named = tuple(msgspec.structs.replace(t, model=t.name, latency_ms={}, inputs="zeros") for t in tasks.tasks)
    plans = tuple(msgspec.structs.replace(t, bundle=bundles[t.task].hash) for t in made.tasks)
    return msgspec.structs.replace(tasks, tasks=named), msgspec.structs.replace(made, tasks=plans), bundles


def real_plan(tasks: Workload, bundles: Mapping[str, Bundle]) -> Plan:
    """Every task on each single core, cut as finely as its bundle allows, a millisecond expected for each part."""
    processors = tuple(p for p in CpuProvider().discover(usable_cores()) if p.threads == 1)
    plans = []
    for task in tasks.tasks:
        bundle = bundles[task.name]
        chain = [s for s in bundle.manifest.subgraphs if s.stop == s.start + 1]
        steps = tuple(Step(s.name, s.start, s.stop, p.name, Latency.constant(1_000_000)) for s in chain for p in processors)
        plans.append(TaskPlan(task=task.name, bundle=bundle.hash, segments=bundle.manifest.segments, steps=steps))
    return Plan(schema=PLAN_SCHEMA, device="here", workload=tasks.sha256, processors=processors, tasks=tuple(plans))


@st.composite
def workloads(draw: st.DrawFn, *, most_tasks: int = 5, released: bool = False) -> Workload:
    """Tasks of every kind on PROCESSORS. Loads from idle to far too much.

    With `released` every task releases its own jobs or follows one that does. A child with a pattern of its own has its
    parent's period: it then never has more jobs than its parent.
    """
    tables: list[dict[str, Any]] = []
    for i in range(draw(st.integers(1, most_tasks))):
        table: dict[str, Any] = {"name": f"t{i}", "criticality": draw(st.sampled_from(["high", "normal", "background"]))}
        kinds = ["period", "rate", "poisson", *(["after", "after", "after own"] if i else []), "train"]
        kind = draw(st.sampled_from(kinds if released else [*kinds, "submitted"]))
        if kind == "period":
            table["period_ms"] = draw(st.sampled_from([5, 8, 10, 10, 20]))
        elif kind == "rate":
            table["rate_hz"] = draw(st.sampled_from([30, 60]))
        elif kind == "poisson":
            table["arrivals"] = {"poisson": draw(st.sampled_from([40, 150])), "seed": i}
        elif kind == "train":
            table["kind"] = "train"
        elif kind == "after":
            table["after"] = draw(st.sampled_from(tables))["name"]
            table["probability"] = draw(st.sampled_from([1.0, 1.0, 0.5]))
        elif kind == "after own":
            parent = draw(st.sampled_from([t for t in tables if "period_ms" in t] or [None]))
            if parent is None:
                table["period_ms"] = 10
            else:
                table |= {
                    "after": parent["name"],
                    "period_ms": parent["period_ms"],
                    "probability": draw(st.sampled_from([1.0, 0.5])),
                }
        if kind != "train":
            deadline = draw(st.sampled_from([None, None, 3, 12, 60]))
            if deadline is not None:
                table["deadline_ms"] = deadline
            stale = draw(st.sampled_from([None, None, None, "latest", "queue:1", "queue:3"]))
            if stale is not None:
                table["stale"] = stale
            if draw(st.booleans()):
                table["carry"] = {"after state": "state"}
        table["segments"] = draw(st.integers(1, 4))
        names = draw(st.lists(st.sampled_from([p.name for p in PROCESSORS]), min_size=1, max_size=4, unique=True))
        table["latency_ms"] = {n: draw(st.sampled_from([1, 2, 3, 4, 7, 16])) for n in names}
        tables.append(table)
    return parse_workload(toml(*tables))
