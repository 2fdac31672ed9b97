"""edgeengine: several ONNX models under deadlines on the processors of one small device, live or simulated.

    import edgeengine

    with edgeengine.Engine("workload.toml", "plan.json") as engine:
        result = engine.submit("detect", {"x": image}).result()

Names are loaded when first used, and only what a device needs: never onnx, torch, typer or rich.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edgeengine.bundle import Bundle, open_bundle
    from edgeengine.devices import discover, load_profile
    from edgeengine.engine import Engine, JobFuture, JobResult
    from edgeengine.errors import DeviceError, EdgeEngineError, InternalError, NotSupported, PlanInfeasible, UserError
    from edgeengine.io import Source, StreamReplay
    from edgeengine.planning import load_plan
    from edgeengine.simulation import simulate
    from edgeengine.spec import Plan, Processor
    from edgeengine.workload import Task, Workload, load_workload

_HOMES = {
    "edgeengine.bundle": ("Bundle", "open_bundle"),
    "edgeengine.devices": ("discover", "load_profile"),
    "edgeengine.engine": ("Engine", "JobFuture", "JobResult"),
    "edgeengine.errors": (
        "DeviceError", "EdgeEngineError", "InternalError", "NotSupported", "PlanInfeasible", "UserError",
    ),
    "edgeengine.io": ("Source", "StreamReplay"),
    "edgeengine.planning": ("load_plan",),
    "edgeengine.simulation": ("simulate",),
    "edgeengine.spec": ("Plan", "Processor"),
    "edgeengine.workload": ("Task", "Workload", "load_workload"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Bundle",
    "DeviceError",
    "EdgeEngineError",
    "Engine",
    "InternalError",
    "JobFuture",
    "JobResult",
    "NotSupported",
    "Plan",
    "PlanInfeasible",
    "Processor",
    "Source",
    "StreamReplay",
    "Task",
    "UserError",
    "Workload",
    "discover",
    "load_plan",
    "load_profile",
    "load_workload",
    "open_bundle",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'edgeengine' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
