"""Simulation: the scheduler as it is, driven by a heap and a virtual clock instead of threads and ONNX Runtime."""

from edgeengine.simulation.execution import ExecutionTimes, Median, Sampled, Worst, make_execution_times
from edgeengine.simulation.simulator import Simulation, simulate, stream
from edgeengine.simulation.truth import device_of

__all__ = [
    "ExecutionTimes",
    "Median",
    "Sampled",
    "Simulation",
    "Worst",
    "device_of",
    "make_execution_times",
    "simulate",
    "stream",
]
