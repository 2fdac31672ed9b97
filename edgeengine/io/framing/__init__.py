"""Framings by name, one file each. Others come from installed packages through the entry-point group `edgeengine.framings`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from edgeengine.errors import UserError
from edgeengine.io.framing.base import Damaged, Framing, Sample
from edgeengine.io.framing.cms50d import Cms50d
from edgeengine.io.framing.cobs_crc import CobsCrc
from edgeengine.io.framing.cyton import Cyton
from edgeengine.io.framing.lines import Lines
from edgeengine.io.framing.reader import Arrived, FrameReader
from edgeengine.io.framing.wt901 import Wt901

BUILT_IN: dict[str, Callable[[], Framing]] = {
    "wt901": Wt901, "cyton": Cyton, "lines": Lines, "cms50d+": Cms50d, "cobs": CobsCrc,
}  # fmt: skip

__all__ = ["Arrived", "Damaged", "FrameReader", "Framing", "Sample", "framing_names", "make_framing"]


def framing_names() -> list[str]:
    return sorted(BUILT_IN) + sorted(e.name for e in entry_points(group="edgeengine.framings"))


def make_framing(name: str) -> Framing:
    """A fresh framing. Raises UserError for an unknown name, one that two packages claim, or one that cannot be imported."""
    found = [e for e in entry_points(group="edgeengine.framings") if e.name == name]
    if len(found) + (name in BUILT_IN) > 1:
        raise UserError(f"framing {name!r} is claimed by more than one package; uninstall all but one")
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if not found:
        raise UserError(f"unknown framing {name!r}; choose one of {', '.join(framing_names())}")
    try:
        made: Framing = found[0].load()()
    except ImportError as e:
        raise UserError(f"framing {name!r} cannot be imported ({e}); install what it needs") from e
    return made
