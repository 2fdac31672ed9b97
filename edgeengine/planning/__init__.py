"""Planning: which subgraphs may run where, decided by measurement before a workload starts."""

from edgeengine.planning.from_latencies import plan_from_latencies

__all__ = ["plan_from_latencies"]
