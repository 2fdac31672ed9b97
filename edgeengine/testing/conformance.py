"""Checks that a third party's provider or policy keeps the contract. Each raises AssertionError saying what it found."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.devices.providers import Provider
from edgeengine.errors import InternalError
from edgeengine.events import Released
from edgeengine.io import make_source
from edgeengine.planning import plan_from_latencies
from edgeengine.scheduling import Policy
from edgeengine.scheduling.job import OUTCOMES
from edgeengine.simulation import Sampled, simulate
from edgeengine.spec import Latency, Processor, Step
from edgeengine.workload import parse_workload

POLICY_WORKLOAD = b"""
[[task]]
name = "camera"
period_ms = 10
criticality = "high"
latency_ms = { npu = 4, cpu = 9 }
segments = 4
[[task]]
name = "second"
after = "camera"
probability = 0.5
latency_ms = { cpu = 5 }
[[task]]
name = "overload"
arrivals = { poisson = 150, seed = 3 }
deadline_ms = 25
criticality = "background"
latency_ms = { npu = 6, cpu = 11 }
stale = "queue:3"
[[task]]
name = "step"
kind = "train"
latency_ms = { cpu = 3 }
segments = 3
"""


def check_policy(make: Callable[[], Policy]) -> None:
    """Run the policy on an overloaded workload: every job ends once with a cause, equal runs are equal.

    The scheduler core itself refuses starts on busy processors and of jobs that are not ready.
    """
    workload = parse_workload(POLICY_WORKLOAD)
    plan = plan_from_latencies(workload)
    try:
        runs = [simulate(workload, plan, make(), Sampled(1), stop_ns=2_000_000_000, keep_log=True) for _ in range(2)]
    except InternalError as e:
        raise AssertionError(f"a job never ended, or the policy broke the core's rules: {e}") from e
    assert runs[0].log == runs[1].log, "two equal runs decided differently: the policy keeps state or draws unseeded numbers"
    seen = set()
    for job in runs[0].jobs:
        key = (job.task.name, job.index)
        assert key not in seen, f"{key} ended twice"
        seen.add(key)
        assert job.outcome in OUTCOMES, f"{key} ended as {job.outcome!r}"
        assert job.cause or job.outcome == "met", f"{key} was {job.outcome} without a cause"
    released = {(e.task, e.index) for e in (line.event for line in runs[0].log or []) if isinstance(e, Released)}
    missing = {key for key in released - seen if key[0] != "second"}
    assert not missing, f"released but never ended: {sorted(missing)[:3]}"


def check_provider(provider: Provider, bundle: Bundle, cores: tuple[int, ...]) -> None:
    """Load the bundle's whole model on each usable processor, run it twice on other inputs: right names, fresh outputs."""
    processors: list[Processor] = provider.discover(cores)
    assert processors, "discover() returned no processor; list unusable ones with usable=False and a reason"
    for processor in processors:
        if not processor.usable:
            assert processor.reason, f"{processor.name} is unusable without a reason"
            continue
        assert processor.resources, f"{processor.name} holds no resource while running"
        whole = bundle.manifest.whole
        step = Step(whole.name, whole.start, whole.stop, processor.name, Latency.constant(1))
        executable = provider.load(bundle, step, processor)
        source = make_source("random:1", whole.inputs)
        first, second = (executable.run(dict(source.read(i, 0))) for i in range(2))
        names = {t.name for t in whole.outputs}
        assert set(first) == names, f"{processor.name}: outputs {sorted(first)} are not {sorted(names)}"
        for name in names:
            shared = np.shares_memory(first[name], second[name])
            assert not shared, f"{processor.name}: output {name!r} is the same array in two runs, or shares its memory"
    provider.close()
