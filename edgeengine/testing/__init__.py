"""For those who add a provider or a policy, and for our own tests: a virtual clock for threads, conformance checks."""

from edgeengine.testing.conformance import check_policy, check_provider
from edgeengine.testing.virtual import VirtualClock

__all__ = ["VirtualClock", "check_policy", "check_provider"]
