"""The scheduler core: a state machine without I/O, threads or clocks, the same class live and simulated."""

from edgeengine.scheduling.core import Scheduler
from edgeengine.scheduling.job import Job
from edgeengine.scheduling.policies import make_policy, policy_names
from edgeengine.scheduling.view import Policy, View

__all__ = ["Job", "Policy", "Scheduler", "View", "make_policy", "policy_names"]
