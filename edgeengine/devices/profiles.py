"""Find and read device profiles: TOML files that describe devices nobody has at hand, each figure with its source.

Found in `$EDGEENGINE_PROFILES` (a folder), then among those shipped: in the wheel beside the package, in a source checkout
at `profiles/`. Anywhere else by their path.
"""

from __future__ import annotations

import csv
import os
import tomllib
from pathlib import Path

import msgspec

from edgeengine.devices.checks import check_profile, readable
from edgeengine.devices.modes import SEPARATOR, in_mode
from edgeengine.errors import UserError, near
from edgeengine.spec.device import DeviceProfile, Status
from edgeengine.spec.operators import OPERATORS

PACKAGE = Path(__file__).resolve().parents[1]
TABLES = "operators.toml"


class OperatorTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The operators that one runtime takes on its processor."""

    source: str
    status: Status
    runs: frozenset[str]


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
    return [read_profile(file, name) for name, file in _files().items()]


def load_profile(name: str) -> DeviceProfile:
    """By `vendor/device`, by `device` alone where that is unique, either in a mode as `device:mode`, or by the path of a `.toml`.

    Raises UserError naming the profiles or modes known, or what is wrong in the one found.
    """
    if name.endswith(".toml"):
        return read_profile(Path(name), f"{Path(name).resolve().parent.name}/{Path(name).stem}")
    name, separator, mode = name.partition(SEPARATOR)
    files = _files()
    matches = [n for n in files if n == name or n.split("/")[1] == name]
    if len(matches) != 1:
        if "*" in name:
            raise UserError(f"{name!r} is a pattern of devices: for --find device={name} or --sweep device={name}; name one here")
        part = [n for n in files if name and name in n]
        hint = f"there are {', '.join(part)}" if part else near(name, [*files, *(n.split("/")[1] for n in files)])
        raise UserError(f"no device profile {name!r}; {hint}; 'edgeengine devices' lists all")
    profile = read_profile(files[matches[0]], matches[0])
    return in_mode(profile, mode) if separator else profile


def read_profile(file: Path, name: str = "") -> DeviceProfile:
    """The profile in `file`. Raises UserError naming the file and the key for one that cannot be right."""
    document: dict[str, object] = {}
    try:
        document = tomllib.loads(file.read_text())
        profile = msgspec.convert(document, DeviceProfile)
    except (ValueError, OSError) as e:  # TOML errors, text that is not UTF-8, and msgspec.ValidationError are ValueErrors
        reason = e.strerror if isinstance(e, OSError) else readable(str(e), document)
        raise UserError(f"{file}: not a valid device profile ({reason})") from e
    return msgspec.structs.replace(check_profile(profile, str(file)), name=name)


def known_macs() -> dict[str, float]:
    """Multiply-accumulates by model_key, of the models whose measurements the shipped profiles come from."""
    for root in profile_roots():
        file = root / "measured" / "model_features.csv"
        if file.is_file():
            with file.open(newline="") as f:
                return {row["model_key"]: float(row["gmacs"]) * 1e9 for row in csv.DictReader(f)}
    return {}


def operator_table(name: str) -> OperatorTable:
    """The table that a processor's `runs` names. Raises UserError for one that is not there, or with operators unknown."""
    known: dict[str, OperatorTable] = {}
    for root in reversed(profile_roots()):
        file = root / TABLES
        if file.is_file():
            try:
                known |= msgspec.convert(tomllib.loads(file.read_text()), dict[str, OperatorTable])
            except (ValueError, OSError) as e:
                raise UserError(f"{file}: not valid tables of operators ({e})") from e
            for key, table in known.items():
                if strange := sorted(table.runs - OPERATORS):
                    raise UserError(f"{file}: {key}.runs: there is no operator {strange[0]!r}")
    if name not in known:
        raise UserError(f"no table of operators {name!r} in {TABLES}; known: {', '.join(sorted(known)) or 'none'}")
    return known[name]
