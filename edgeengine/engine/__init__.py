"""The live engine: worker threads, data flow, and the API that device apps embed."""

from edgeengine.engine.engine import Engine
from edgeengine.engine.result import JobFuture, JobResult

__all__ = ["Engine", "JobFuture", "JobResult"]
