"""Strict mode: refuse what would silently run elsewhere. Wraps any provider; the wrapped one knows nothing of it."""

from __future__ import annotations

from edgeengine.bundle import Bundle
from edgeengine.devices.providers.base import Executable, Provider
from edgeengine.errors import DeviceError
from edgeengine.spec import Fallback, Placement, Processor, Step


class Strict:
    """Loads as `provider` does; raises DeviceError naming the operators where any node was assigned to another provider."""

    def __init__(self, provider: Provider):
        self.name, self._provider = provider.name, provider

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        return self._provider.discover(cores)

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        executable = self._provider.load(bundle, step, processor)
        if executable.placement is not None:
            require_whole(executable.placement, f"{step.subgraph} on {processor.name}")
        return executable

    def close(self) -> None:
        self._provider.close()


def require_whole(placement: Placement, what: str) -> None:
    """Raises DeviceError where something fell back."""
    if placement.whole:
        return
    fallen = sum(len(f.nodes) for f in placement.fallback)
    ops = "; ".join(_told(f) for f in placement.fallback)
    raise DeviceError(
        f"{what}: strict, and {fallen} of {sum(placement.nodes.values())} nodes fell back from {placement.asked}: {ops}; "
        "cut there with 'edgeengine split --for', or leave out --strict"
    )


def _told(fallback: Fallback) -> str:
    nodes = ", ".join(fallback.nodes[:3]) + (", …" if len(fallback.nodes) > 3 else "")
    return f"{fallback.op} ({nodes}) to {fallback.provider}" + (f": {fallback.reason}" if fallback.reason else "")
