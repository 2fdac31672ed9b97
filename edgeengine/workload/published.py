"""Published workloads by name: "xr:vr_gaming" (see workload.xr), "disb:A" (workload.disb), "band:sample" (workload.band)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edgeengine.workload import band, disb, xr
from edgeengine.workload.task import Workload

XR = "xr:"


class _Make(Protocol):
    def __call__(self, name: str, device: str | xr.Rates = "a", /) -> Workload: ...


# Prefix -> how the workload is made for a device's rates, and the multiply-accumulates (millions) of its tasks by name.
FAMILIES: dict[str, tuple[_Make, Callable[[str], float]]] = {
    XR: (xr.xr_workload, xr.mega_macs),
    "disb:": (disb.disb_workload, disb.mega_macs),
    "band:": (band.band_workload, band.mega_macs),
}


@dataclass(frozen=True)
class Published:
    """One workload of a family. `make` raises UserError for a name that the family does not have."""

    name: str
    make: _Make
    mega_macs: Callable[[str], float]

    def workload(self, device: str | xr.Rates = "a") -> Workload:
        return self.make(self.name, device)


def published(path: str) -> Published | None:
    """The workload so named; None for what has no family's prefix, such as a file."""
    for prefix, (make, mega_macs) in FAMILIES.items():
        if path.startswith(prefix):
            return Published(path.removeprefix(prefix), make, mega_macs)
    return None
