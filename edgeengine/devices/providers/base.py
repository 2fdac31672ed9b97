"""What a provider is: it offers processors, and loads subgraphs onto them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from edgeengine.bundle import Bundle
from edgeengine.errors import UserError
from edgeengine.spec import Placement, Processor, Step

Tensors = dict[str, np.ndarray]


class Executable(Protocol):
    """A loaded subgraph. `run` may be called from several threads at once.

    One that can be cut short has a method `begin() -> Run` too: a fresh object for one run, with the same `run(feeds)` and a
    `terminate()` that another thread may call at any moment; the run then raises.

    `placement` says which provider took which nodes, None where there is nothing to tell (the null provider).
    """

    placement: Placement | None

    def run(self, feeds: Tensors) -> Tensors:
        """Run once; returns when the outputs are there, in memory nobody else writes.

        `feeds` may hold more tensors than the subgraph reads. Raises DeviceError when the run fails.
        """
        ...


@runtime_checkable
class Traceable(Protocol):
    """An Executable that can say where its time goes."""

    def time_share(self, feeds: Tensors) -> dict[str, float] | None:
        """Share of its nodes' time by provider, adding to 1; None where that cannot be told. May take many times a run."""
        ...


class Provider(Protocol):
    """`name` is what Processor.provider says (ONNX Runtime's own name where it is one of its providers)."""

    name: str

    def discover(self, cores: tuple[int, ...]) -> list[Processor]:
        """The processors it offers, given the host cores this process may use."""
        ...

    def load(self, bundle: Bundle | None, step: Step, processor: Processor) -> Executable:
        """Make the step's subgraph ready on the processor. May take long: never called under a deadline.

        Raises DeviceError when it cannot, UserError when it is asked for what it does not know.
        """
        ...

    def close(self) -> None:
        """Release what it loaded. Nothing may be running."""
        ...


def subgraph_file(bundle: Bundle | None, step: Step) -> Path:
    """The step's .onnx. Raises UserError where the task states latencies instead of a model."""
    if bundle is None:
        raise UserError(f"subgraph {step.subgraph!r} has latencies but no model: it can be simulated, not run")
    return bundle.file(bundle.manifest.subgraph(step.subgraph))
