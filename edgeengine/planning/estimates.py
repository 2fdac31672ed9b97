"""Latencies of work of which little is known: of its multiply-accumulates, by the line through a processor's measurements."""

from __future__ import annotations

from collections.abc import Iterator

from edgeengine.devices.effects import effects_of, spread
from edgeengine.profiling.described import Expected
from edgeengine.spec import Plan, Step, TaskPlan
from edgeengine.spec.device import DeviceProfile, Speed
from edgeengine.spec.plan import SCHEMA
from edgeengine.spec.profile import ESTIMATED
from edgeengine.workload import Task, Workload
from edgeengine.workload.xr import MEGA_MACS, line_of, rates_of, xr_workload


def from_macs(macs: float, speed: Speed) -> Expected:
    """Overhead + MACs / rate, at the bounds of both for its own. The speed must have a line."""
    assert speed.rate is not None and speed.overhead is not None
    o, r, giga = speed.overhead, speed.rate, macs / 1e9
    low = (o.low or o.value) + 1e3 * giga / (r.high or r.value)
    high = (o.high or o.value) + 1e3 * giga / (r.low or r.value)
    return Expected((o.value + 1e3 * giga / r.value) * 1e6, low * 1e6, high * 1e6, ESTIMATED)


def xr_on_device(scenario: str, device: DeviceProfile) -> tuple[Workload, Plan]:
    """An XRBench scenario on a described device: its models by their MACs alone.

    Raises UserError for a device without rates.
    """
    workload = xr_workload(scenario, rates_of(device))
    tasks = tuple(TaskPlan(t.name, "", 1, tuple(_steps(t, device)), basis=ESTIMATED) for t in workload.tasks)
    return workload, Plan(SCHEMA, device.name, workload.sha256, device.processors, tasks, effects=effects_of(device))


def _steps(task: Task, device: DeviceProfile) -> Iterator[Step]:
    for profile in device.processor:
        speed = line_of(profile)
        if speed is not None:
            expected = from_macs(MEGA_MACS[task.name] * 1e6, speed)
            names = [p.name for p in profile.processors if p.name in task.latency_ms]
            yield from (step_of(task.name, 0, 1, name, expected, device) for name in names)


def step_of(name: str, start: int, stop: int, processor: str, expected: Expected, device: DeviceProfile) -> Step:
    latency = spread(expected.median_ns, device.tail)
    bounds = (expected.low_ns / expected.median_ns, expected.high_ns / expected.median_ns)
    return Step(name, start, stop, processor, latency, bounds=bounds)
