"""Write profiles/<vendor>/<device>.toml, all of them, from the tables in profiles/measured."""

from __future__ import annotations

from pathlib import Path

from edgeengine.devices.profile_file import to_toml
from tools.profiles.assemble import Assembly
from tools.profiles.tables import ROOT, Tables

HEAD = "# Made by `make profiles` from the tables in profiles/measured; edit those.\n"


def write(root: Path = ROOT) -> list[Path]:
    """The files written, in the order of the table."""
    written = []
    for name, profile in Assembly(Tables()).all().items():
        file = root / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(HEAD + to_toml(profile))
        written.append(file)
    return written


if __name__ == "__main__":
    for made in write():
        print(made)
