"""Write profiles/<vendor>/<device>.toml, all of them, from the tables in profiles/measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from edgeengine.devices.profile_file import to_toml
from tools.profiles.assemble import Assembly
from tools.profiles.tables import ROOT, Tables

HEAD = "# Made by `make profiles` from the tables in profiles/measured; edit those.\n"


def write(root: Path, tables: Tables, names: Iterable[str]) -> list[Path]:
    """The files written, in the order of the names."""
    assembly, written = Assembly(tables), []
    for name in names:
        profile = assembly.profile(name)
        file = root / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD + to_toml(profile))
        written.append(file)
    return written


if __name__ == "__main__":
    everything = Tables()
    for made in write(ROOT, everything, [row["profile"] for row in everything.devices]):
        print(made)
