"""Fill frame windows before the run: the parent model works through the input that came before time 0."""

from __future__ import annotations

from edgeengine.devices.providers import Executable
from edgeengine.devices.providers.base import Tensors
from edgeengine.engine.dataflow import DataFlow
from edgeengine.errors import UserError
from edgeengine.spec import Plan
from edgeengine.workload import Task, Workload


def prime_windows(
    workload: Workload, plan: Plan, data: DataFlow, executables: dict[str, dict[tuple[str, str], Executable]]
) -> None:
    """Run each windowed task's parent for jobs -k … -1, k = enough to fill the window but for job 0's own frames."""
    for task in workload.tasks:
        if task.window is None or task.after is None:
            continue
        parent = workload.task(task.after)
        source = data.tasks[parent.name].source
        if source is None or parent.period_ns is None:
            continue  # submitted by the app, which primes it with its own first jobs
        needed = -(-task.window.frames // task.window.hop)
        for index in range(-needed, 0):
            outputs = _run_whole(parent, plan, dict(source.read(index, index * parent.period_ns)), executables)
            try:
                data.tasks[task.name].accept(index, outputs)
            except UserError as e:
                if index == -1:
                    raise UserError(f"task {task.name!r}: priming its window failed: {e}") from e
        data.tasks[task.name].feeds.clear()


def _run_whole(task: Task, plan: Plan, tensors: Tensors, executables: dict[str, dict[tuple[str, str], Executable]]) -> Tensors:
    steps = plan.task(task.name).steps
    position = 0
    while position < plan.task(task.name).segments:
        step = next(s for s in steps if s.start == position)
        tensors.update(executables[step.processor][task.name, step.subgraph].run(tensors))
        position = step.stop
    return tensors
