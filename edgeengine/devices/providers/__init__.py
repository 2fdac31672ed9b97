"""Providers by name, one file each. Others come from installed packages through the entry-point group `edgeengine.providers`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from edgeengine.devices.providers.accelerator import Accelerator
from edgeengine.devices.providers.base import Executable, Provider
from edgeengine.devices.providers.built_in import BUILT_IN_ROWS
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.devices.providers.openvino import OPENVINO
from edgeengine.devices.providers.ort import check_names, first_line
from edgeengine.devices.providers.qnn import QNN
from edgeengine.devices.providers.strict import Strict, require_whole
from edgeengine.devices.providers.tensorrt_rtx import TENSORRT_RTX
from edgeengine.devices.providers.webgpu import WEBGPU
from edgeengine.errors import UserError

ROWS = (QNN, OPENVINO, WEBGPU, TENSORRT_RTX, *BUILT_IN_ROWS)

__all__ = ["Executable", "Provider", "Strict", "load_providers", "require_whole"]


def load_providers(
    *, strict: bool = False, options: Mapping[str, Mapping[str, str]] | None = None, cache: Path | None = None
) -> dict[str, Provider]:
    """A fresh instance of each that is installed.

    Args:
        strict: loading raises DeviceError where a node would run on another provider than the one asked.
        options: by processor name, options of an execution provider and session entries; see Accelerator.
        cache: where compiled models are kept; default: the state folder's `cache`.

    Raises UserError when two claim one name, one cannot be made, or an option is unknown.
    """
    made: dict[str, Provider] = {CpuProvider.name: CpuProvider()}
    check_names(options or (), {place.name for row in ROWS for place in row.places}, "processor that takes options:")
    for row in ROWS:
        if row.provider not in made and row.installed:
            made[row.provider] = Accelerator(row, options, cache)
    for entry in entry_points(group="edgeengine.providers"):
        if entry.name in made:
            raise UserError(f"provider {entry.name!r} is claimed by more than one package; uninstall all but one")
        try:
            made[entry.name] = entry.load()()
        except Exception as e:  # a stranger's package may fail in any way
            raise UserError(
                f"provider {entry.name!r} cannot be made ({first_line(e)}); install what it needs, or remove it"
            ) from e
    return {name: Strict(provider) for name, provider in made.items()} if strict else made
