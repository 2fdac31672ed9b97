"""Policies by name, one file each. Others come from installed packages through the entry-point group `edgeengine.policies`."""

from __future__ import annotations

from importlib.metadata import entry_points

from edgeengine.errors import UserError
from edgeengine.scheduling.policies.edf import Edf
from edgeengine.scheduling.policies.fifo import Fifo
from edgeengine.scheduling.view import Policy

BUILT_IN: dict[str, type[Policy]] = {"edf": Edf, "fifo": Fifo}


def policy_names() -> list[str]:
    return sorted(BUILT_IN) + sorted(e.name for e in entry_points(group="edgeengine.policies"))


def make_policy(name: str) -> Policy:
    """A fresh policy. Raises UserError with the known names for an unknown one, or one that two packages claim."""
    found = [e for e in entry_points(group="edgeengine.policies") if e.name == name]
    if len(found) + (name in BUILT_IN) > 1:
        raise UserError(f"policy {name!r} is claimed by more than one package; uninstall all but one")
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if not found:
        raise UserError(f"unknown policy {name!r}; choose one of {', '.join(policy_names())}")
    try:
        made: Policy = found[0].load()()
    except ImportError as e:
        raise UserError(f"policy {name!r} cannot be imported ({e}); install what it needs") from e
    return made
