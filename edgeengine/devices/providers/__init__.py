"""Providers by name, one file each. Others come from installed packages through the entry-point group `edgeengine.providers`."""

from __future__ import annotations

from importlib.metadata import entry_points

from edgeengine.devices.providers.base import Executable, Provider
from edgeengine.devices.providers.cpu import CpuProvider
from edgeengine.errors import UserError

BUILT_IN: dict[str, type[Provider]] = {CpuProvider.name: CpuProvider}

__all__ = ["Executable", "Provider", "load_providers"]


def load_providers() -> dict[str, Provider]:
    """A fresh instance of each. Raises UserError when two claim one name or one cannot be imported."""
    made: dict[str, Provider] = {name: cls() for name, cls in BUILT_IN.items()}
    for entry in entry_points(group="edgeengine.providers"):
        if entry.name in made:
            raise UserError(f"provider {entry.name!r} is claimed by more than one package; uninstall all but one")
        try:
            made[entry.name] = entry.load()()
        except ImportError as e:
            raise UserError(f"provider {entry.name!r} cannot be imported ({e}); install what it needs") from e
    return made
