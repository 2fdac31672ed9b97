"""Simulation: the scheduler as it is, driven by a heap and a virtual clock instead of threads and ONNX Runtime."""

from edgeengine.simulation.execution import ExecutionTimes, Median, Sampled, Worst, make_execution_times
from edgeengine.simulation.simulator import Simulation, simulate, stream

__all__ = ["ExecutionTimes", "Median", "Sampled", "Simulation", "Worst", "make_execution_times", "simulate", "stream"]
