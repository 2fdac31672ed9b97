"""Many simulations of one workload: sweeps over its settings, and the search for the setting that just meets the deadlines."""

from edgeengine.sweeps.point import Question, answer
from edgeengine.sweeps.runner import run_points
from edgeengine.sweeps.sizing import Found, find
from edgeengine.sweeps.space import Axis, parse_axis, points

__all__ = ["Axis", "Found", "Question", "answer", "find", "parse_axis", "points", "run_points"]
