"""A processor: one place where a subgraph can run."""

from __future__ import annotations

import msgspec


class Processor(msgspec.Struct, frozen=True):
    """Provider + device + thread configuration.

    `resources` are held while a subgraph runs: processors sharing one never run at the same time ("both cores" excludes
    "core 0"). `host_core` is the core its call occupies (the worker is pinned there; None = not pinned). `cores` are the
    host cores its threads may use, one thread each. An unusable processor is listed with the `reason`, never replaced.
    `core_kind` tells kinds of cores apart where a machine has several (big.LITTLE). Tensors it works on lie in its `memory`.
    `options` are those the user gave its provider, sorted by name: a profile and a plan keep them, so that what is loaded later
    is what was measured. `power_w`: what it draws while it runs, above the device at rest, where known.
    """

    name: str
    kind: str  # cpu | gpu | npu
    provider: str
    resources: tuple[str, ...]
    host_core: int | None = None
    cores: tuple[int, ...] = ()
    threads: int = 1
    emulated: bool = False
    usable: bool = True
    reason: str = ""
    memory: str = "host"
    core_kind: str = ""
    options: tuple[tuple[str, str], ...] = ()
    power_w: float | None = None

    def conflicts(self, other: Processor) -> bool:
        return not set(self.resources).isdisjoint(other.resources)
