"""Workloads: the tasks that run together, when their jobs are released, and where their inputs come from."""

from edgeengine.workload.arrivals import Releases, release_times
from edgeengine.workload.file import load_workload, parse_workload, revised
from edgeengine.workload.task import Arrivals, Task, Window, Workload

__all__ = ["Arrivals", "Releases", "Task", "Window", "Workload", "load_workload", "parse_workload", "release_times", "revised"]
