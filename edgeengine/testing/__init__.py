"""For those who add a provider, a policy or a converter, and our own tests: a virtual clock for threads, conformance checks."""

from edgeengine.testing.conformance import check_policy, check_provider
from edgeengine.testing.converters import check_converter
from edgeengine.testing.virtual import VirtualClock

__all__ = ["VirtualClock", "check_converter", "check_policy", "check_provider"]
