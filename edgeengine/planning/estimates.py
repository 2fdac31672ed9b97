"""Latencies of work of which little is known: of its multiply-accumulates, by the line through a processor's measurements."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from edgeengine.devices.effects import effects_of, spread
from edgeengine.profiling.described import Expected
from edgeengine.spec import Plan, Step, TaskPlan
from edgeengine.spec.device import DeviceProfile, Speed
from edgeengine.spec.plan import SCHEMA
from edgeengine.spec.profile import ESTIMATED
from edgeengine.workload import Task, Workload
from edgeengine.workload.published import Published
from edgeengine.workload.xr import line_of, rates_of


def from_macs(macs: float, speed: Speed) -> Expected:
    """Overhead + MACs / rate, at the bounds of both for its own. The speed must have a line."""
    assert speed.rate is not None and speed.overhead is not None
    o, r, giga = speed.overhead, speed.rate, macs / 1e9
    low = (o.low or o.value) + 1e3 * giga / (r.high or r.value)
    high = (o.high or o.value) + 1e3 * giga / (r.low or r.value)
    return Expected((o.value + 1e3 * giga / r.value) * 1e6, low * 1e6, high * 1e6, ESTIMATED)


def published_on_device(workload: Workload, ready: Published, device: DeviceProfile) -> tuple[Workload, Plan]:
    """A published workload, its rates and deadlines as they are now, on a described device: its models by their MACs alone.

    Raises UserError for a device without rates.
    """
    made = ready.workload(rates_of(device))
    there = (made.task(t.name) for t in workload.tasks)
    described = tuple(
        replace(t, latency_ms=m.latency_ms, energy_mj=m.energy_mj) for t, m in zip(workload.tasks, there, strict=True)
    )
    plans = tuple(TaskPlan(t.name, "", 1, tuple(_steps(t, ready, device)), basis=ESTIMATED) for t in described)
    plan = Plan(SCHEMA, device.name, workload.sha256, device.processors, plans, effects=effects_of(device))
    return replace(workload, tasks=described), plan


def _steps(task: Task, ready: Published, device: DeviceProfile) -> Iterator[Step]:
    for profile in device.processor:
        speed = line_of(profile)
        if speed is not None:
            expected = from_macs(ready.mega_macs(task.name) * 1e6, speed)
            names = [p.name for p in profile.processors if p.name in task.latency_ms]
            yield from (step_of(task.name, 0, 1, name, expected, device) for name in names)


def step_of(name: str, start: int, stop: int, processor: str, expected: Expected, device: DeviceProfile) -> Step:
    latency = spread(expected.median_ns, device.tail)
    bounds = (expected.low_ns / expected.median_ns, expected.high_ns / expected.median_ns)
    return Step(name, start, stop, processor, latency, bounds=bounds)
