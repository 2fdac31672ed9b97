"""`edgeengine devices`: what this machine offers, which devices are described, and how to describe one more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeengine.cli.console import Json, State, note, print_json, print_table

EXAMPLES = (
    "edgeengine devices",
    "edgeengine devices show raspberrypi/pi4",
    "edgeengine devices calibrate --from anchors.csv --like raspberrypi/pi4 -o mine.toml",
    "edgeengine devices --json",
)


def command(
    action: Annotated[str | None, typer.Argument(help="show or calibrate", metavar="[show|calibrate")] = None,
    name: Annotated[str | None, typer.Argument(help="A described device.", metavar="NAME]")] = None,
    anchors: Annotated[
        str | None, typer.Option("--from", help="calibrate: measurements, a .csv or what 'profiles export' wrote.")
    ] = None,
    like: Annotated[str | None, typer.Option(help="calibrate: the described device it is like.")] = None,
    bundle: Annotated[list[str] | None, typer.Option(help="calibrate: a bundle that exported rows are of.")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="calibrate: the profile to write, FILE.toml.")] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """List the processors of this machine and the described devices, show one of these, or make one from few measurements."""
    from edgeengine.errors import UserError

    if action == "calibrate" and name is None and anchors and like and output:
        _calibrate(anchors, like, bundle or [], output, state, json)
    elif action != "calibrate" and (anchors or like or bundle or output):
        raise UserError("devices: --from, --like, --bundle and -o are for 'edgeengine devices calibrate'")
    elif action == "show" and name is not None:
        _show(name, json)
    elif action is None:
        _list(json)
    else:
        incomplete = {"show": "show what?", "calibrate": "calibrate by what, like which, into which file?"}
        wrong = incomplete.get(action or "", f"unknown action {action!r};")
        raise UserError(
            f"devices: {wrong} use 'edgeengine devices', 'edgeengine devices show NAME' or "
            "'edgeengine devices calibrate --from ANCHORS --like DEVICE -o FILE.toml'"
        )


def _show(name: str, json: bool) -> None:
    from edgeengine.cli.device_table import print_profile
    from edgeengine.devices import load_profile

    profile = load_profile(name)
    if json:
        print_json(profile)
    else:
        print_profile(profile)


def _list(json: bool) -> None:
    from edgeengine.devices import device_id, discover, list_profiles

    processors, profiles = discover(), list_profiles()
    if json:
        print_json({"device": device_id(), "processors": processors, "profiles": [p.name for p in profiles]})
        return
    print_table(
        f"this machine: {device_id()}",
        ["processor", "kind", "provider", "resources", "threads", "emulated", "usable"],
        [
            [p.name, p.kind, p.provider, " ".join(p.resources), p.threads, _yes(p.emulated), p.reason or _yes(p.usable)]
            for p in processors
        ],
    )
    print_table(
        "described devices",
        ["name", "description", "processors", "modes"],
        [[p.name, p.description, " ".join(q.name for q in p.processor), " ".join(m.name for m in p.mode)] for p in profiles],
    )


def _calibrate(anchors: str, like: str, bundles: list[str], output: str, state: str | None, json: bool) -> None:
    """Write the profile aside and rename it; show it."""
    from edgeengine.bundle import open_bundle
    from edgeengine.cli.device_table import print_profile
    from edgeengine.devices import load_profile
    from edgeengine.devices.checks import check_profile
    from edgeengine.devices.profile_file import to_toml
    from edgeengine.devices.profiles import known_macs
    from edgeengine.errors import UserError
    from edgeengine.planning.calibration import calibrated
    from edgeengine.profiling.anchors import read_csv, read_export
    from edgeengine.reporting import write_file
    from edgeengine.state import state_folder

    if not output.endswith(".toml"):
        raise UserError(f"devices calibrate: -o {output}: a profile's file ends in .toml")
    file = Path(anchors)
    if file.suffix == ".csv":
        found = read_csv(file, known_macs())
    else:
        folders = [*map(Path, bundles), *(state_folder(state) / "bundles").glob("*.edge")]
        found = read_export(file, [open_bundle(folder) for folder in folders])
    profile = calibrated(found, load_profile(like), f"calibrated by {file.name} ({len(found)} measurements)", file.name)
    check_profile(profile, f"{file}, what it makes of {like}")
    write_file(Path(output), to_toml(profile).encode())
    made = load_profile(output)
    if json:
        print_json(made)
    else:
        print_profile(made)
    note(f"written to {output}; use it as --device {output}")


def _yes(value: bool) -> str:
    return "yes" if value else "no"
