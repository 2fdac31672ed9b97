"""Planning: which subgraphs may run where, decided by measurement before a workload starts."""

from edgeengine.planning.file import load_plan
from edgeengine.planning.from_latencies import plan_from_latencies, task_from_latencies
from edgeengine.planning.mapper import Mapping, map_task
from edgeengine.planning.plan import TaskInput, make_plan

__all__ = [
    "Mapping",
    "TaskInput",
    "load_plan",
    "make_plan",
    "map_task",
    "plan_from_latencies",
    "task_from_latencies",
]
