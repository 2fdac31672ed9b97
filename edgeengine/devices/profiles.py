"""Device profiles: TOML files that describe devices nobody has at hand, each figure with its source.

Found in `$EDGEENGINE_PROFILES` (a folder), then among those shipped: in the wheel beside the package, in a source checkout
at `profiles/`.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from edgeengine.errors import UserError
from edgeengine.spec import Processor

PACKAGE = Path(__file__).resolve().parents[1]


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number with its unit, where it comes from, and how far to trust it."""

    value: float
    unit: str
    source: str
    status: Literal["seen", "derived", "fitted", "guessed"]


class ProcessorProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: Literal["cpu", "gpu", "npu"]
    resources: tuple[str, ...]
    description: str
    threads: int = 1
    clock: Figure | None = None
    power: Figure | None = None  # W, while it runs


class DeviceProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One described device. `name` is vendor/device, from the file's place."""

    description: str
    chip: str
    processor: tuple[ProcessorProfile, ...]
    memory_bandwidth: Figure | None = None
    name: str = ""

    @property
    def processors(self) -> tuple[Processor, ...]:
        return tuple(
            Processor(
                name=p.name,
                kind=p.kind,
                provider="simulated",
                resources=p.resources,
                threads=p.threads,
                power_w=None if p.power is None else p.power.value,
            )
            for p in self.processor
        )


def profile_roots() -> list[Path]:
    """Folders that hold `<vendor>/<device>.toml`, the user's own first."""
    own = os.environ.get("EDGEENGINE_PROFILES")
    roots = [Path(own)] if own else []
    if own and not roots[0].is_dir():
        raise UserError(f"EDGEENGINE_PROFILES={own}: no such folder")
    return roots + [p for p in (PACKAGE / "profiles", PACKAGE.parent / "profiles") if p.is_dir()]


def _files() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for root in profile_roots():
        for file in sorted(root.glob("*/*.toml")):
            found.setdefault(f"{file.parent.name}/{file.stem}", file)
    return found


def list_profiles() -> list[DeviceProfile]:
    return [load_profile(name) for name in _files()]


def load_profile(name: str) -> DeviceProfile:
    """By `vendor/device`, or `device` alone where that is unique. Raises UserError naming those known."""
    files = _files()
    matches = [n for n in files if n == name or n.split("/")[1] == name]
    if len(matches) != 1:
        raise UserError(f"no device profile {name!r}; known: {', '.join(files) or 'none'}")
    file = files[matches[0]]
    try:
        profile = msgspec.convert(tomllib.loads(file.read_text()), DeviceProfile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, OSError) as e:
        raise UserError(f"{file}: not a valid device profile ({e})") from e
    return msgspec.structs.replace(profile, name=matches[0])
