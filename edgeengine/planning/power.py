"""A power cap as part of the plan: processors that together would draw more than it never run at the same time.

The cap becomes resources that processors hold in common ("power:0", …), so that the core, every policy, admission and the
simulator keep it without knowing of it. Power is what the plan's processors draw while they run (`Processor.power_w`); what the
device draws at rest is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, count

import msgspec

from edgeengine.errors import PlanInfeasible, UserError
from edgeengine.spec import Plan, Processor

MOST_PROCESSORS = 12  # every set of them is looked at


def capped(plan: Plan, cap_w: float) -> Plan:
    """The plan with `cap_w` watts kept at any instant. A processor that alone draws more leaves the plan.

    Which two of a set that draws too much exclude each other: the two that draw most, so that the small ones still run beside
    either. Raises UserError where a used processor's power is not known, PlanInfeasible where a task has no way left.
    """
    used = {s.processor for t in plan.tasks for s in t.steps}
    running = [p for p in plan.processors if p.name in used]
    unknown = [p.name for p in running if p.power_w is None]
    if unknown:
        raise UserError(f"power cap: what {', '.join(unknown)} draws is not known; give power in the device profile")
    if len(running) > MOST_PROCESSORS:
        raise UserError(f"power cap: the plan uses {len(running)} processors, at most {MOST_PROCESSORS} can be capped")
    fit = [p for p in running if _watts(p) <= cap_w]
    resources = {p.name: p.resources for p in plan.processors}
    for n in count():
        together = _most_together(fit, resources)
        if sum(map(_watts, together)) <= cap_w:
            break
        for p in sorted(together, key=_watts)[-2:]:
            resources[p.name] = (*resources[p.name], f"power:{n}")
    names = {p.name for p in fit}
    tasks = []
    for task in plan.tasks:
        steps = tuple(s for s in task.steps if s.processor in names)
        if task.steps and not _leads_through(task.segments, {(s.start, s.stop) for s in steps}):
            raise PlanInfeasible(f"task {task.task!r}: no processor that can run it draws at most {cap_w:g} W")
        tasks.append(msgspec.structs.replace(task, steps=steps))
    processors = tuple(msgspec.structs.replace(p, resources=resources[p.name]) for p in plan.processors)
    return msgspec.structs.replace(plan, processors=processors, tasks=tuple(tasks))


def _watts(processor: Processor) -> float:
    return processor.power_w or 0.0


def _most_together(processors: Sequence[Processor], resources: Mapping[str, tuple[str, ...]]) -> tuple[Processor, ...]:
    """Of those that may run at the same time, the set that draws most."""
    free = (
        chosen
        for size in range(len(processors) + 1)
        for chosen in combinations(processors, size)
        if all(set(resources[p.name]).isdisjoint(resources[q.name]) for p, q in combinations(chosen, 2))
    )
    return max(free, key=lambda chosen: sum(map(_watts, chosen)))


def _leads_through(segments: int, moves: set[tuple[int, int]]) -> bool:
    reached = {0}
    for position in range(segments):
        if position in reached:
            reached |= {stop for start, stop in moves if start == position}
    return segments in reached
