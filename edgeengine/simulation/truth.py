"""One device out of those that a plan's predictions allow: what is not known for sure is drawn once for a run, not for every job.

A prediction's error belongs to the model and the processor: it is the same in every job, and of all parts of a model about the
same. So one draw for each (model, processor) moves all its steps, each within its own bounds, on a log-normal scale whose 5 and
95 % points are these. The scheduler of a real device has measured it: it goes by what was drawn.
"""

from __future__ import annotations

import math
import random

import msgspec

from edgeengine.spec import Plan, Step

Z90 = 1.6449  # standard deviations on either side that hold 90 % of a normal distribution


def device_of(plan: Plan, times: str, seed: int) -> Plan:
    """The plan on one device: as predicted for median times, the slowest that is likely for worst ones, else drawn by `seed`."""
    if times == "median":
        return _moved(plan, {})
    return slowest(plan) if times == "worst" else drawn(plan, seed)


def drawn(plan: Plan, seed: int) -> Plan:
    """The plan on the device that `seed` draws. The plan itself where all its latencies are known."""
    rng = random.Random(f"device:{seed}")
    z: dict[tuple[str, str], float] = {}
    for task in plan.tasks:  # in the order of the plan, so that equal seeds give equal devices
        for step in task.steps:
            if step.bounds is not None and (task.bundle or task.task, step.processor) not in z:
                z[task.bundle or task.task, step.processor] = rng.gauss(0, 1)
    return _moved(plan, z)


def slowest(plan: Plan) -> Plan:
    """The plan on a device where every prediction is as late as its bounds allow."""
    return _moved(plan, {(t.bundle or t.task, s.processor): Z90 for t in plan.tasks for s in t.steps})


def _moved(plan: Plan, z: dict[tuple[str, str], float]) -> Plan:
    if not any(s.bounds for t in plan.tasks for s in t.steps):
        return plan
    tasks = tuple(
        msgspec.structs.replace(t, steps=tuple(_step(s, z.get((t.bundle or t.task, s.processor), 0.0)) for s in t.steps))
        for t in plan.tasks
    )
    return msgspec.structs.replace(plan, tasks=tasks)


def _step(step: Step, z: float) -> Step:
    if step.bounds is None:
        return step
    factor = math.exp(abs(z) / Z90 * math.log(step.bounds[z > 0]))
    return msgspec.structs.replace(step, latency=step.latency.scaled(factor), bounds=None)
