"""Fill frame windows before the run: the parent model works through the input that came before time 0."""

from __future__ import annotations

from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.dataflow import DataFlow, TaskData
from edgeengine.errors import UserError
from edgeengine.spec import Plan
from edgeengine.workload import Task, Workload


def prime_windows(
    workload: Workload, plan: Plan, data: DataFlow, executables: dict[str, dict[tuple[str, str], Executable]]
) -> None:
    """Run each parent of windowed tasks for jobs -k … -1, k = enough to fill the largest window but for job 0's own frames.

    What the parent carries evolves with these jobs, and job 0 goes on from there. Parents without a period or a source, and
    those that are fed themselves, have no earlier input here: their first jobs fill the windows.
    """
    for parent in workload.tasks:
        mine = data.tasks[parent.name]
        children = [c for c in mine.children if c.spec.window is not None]
        allowed = bool(plan.task(parent.name).steps)  # else admission refused it
        if children and allowed and mine.source is not None and parent.period_ns is not None and not parent.feed:
            _prime(parent, parent.period_ns, mine, children, plan, executables)


def _prime(
    parent: Task,
    period_ns: int,
    mine: TaskData,
    children: list[TaskData],
    plan: Plan,
    executables: dict[str, dict[tuple[str, str], Executable]],
) -> None:
    needed = max(-(-w.frames // w.hop) for w in (c.spec.window for c in children) if w is not None) - 1
    for index in range(-needed, 0):
        outputs = _run_whole(parent, plan, mine.gather(index, index * period_ns), executables)
        mine.remember(outputs)
        for child in children:
            try:
                child.accept(index, outputs)
            except Exception as e:  # glue may raise anything
                cause = e if isinstance(e, UserError) else f"{type(e).__name__}: {e}"
                raise UserError(f"task {child.spec.name!r}: priming its window failed: {cause}") from e
    for child in children:
        child.feeds.clear()


def _run_whole(task: Task, plan: Plan, tensors: Tensors, executables: dict[str, dict[tuple[str, str], Executable]]) -> Tensors:
    steps = plan.task(task.name).steps
    position = 0
    while position < plan.task(task.name).segments:
        step = next(s for s in steps if s.start == position)
        tensors.update(executables[step.processor][task.name, step.subgraph].run(tensors))
        position = step.stop
    return tensors
