"""`edgeengine devices`: what this machine offers, and which devices are described."""

from __future__ import annotations

from typing import Annotated

import typer

from edgeengine.cli.console import Json, print_json, print_table

EXAMPLES = (
    "edgeengine devices",
    "edgeengine devices show raspberrypi/pi4",
    "edgeengine devices --json",
)


def command(
    action: Annotated[str | None, typer.Argument(help="show", metavar="[show")] = None,
    name: Annotated[str | None, typer.Argument(help="A described device.", metavar="NAME]")] = None,
    json: Json = False,
) -> None:
    """List the processors of this machine and the described devices, or show one of these."""
    from edgeengine.cli.device_table import print_profile
    from edgeengine.devices import device_id, discover, list_profiles, load_profile
    from edgeengine.errors import UserError

    if action is not None and (action != "show" or name is None):
        raise UserError(f"devices: unknown action {action!r}; use 'edgeengine devices' or 'edgeengine devices show NAME'")
    if name is not None:
        profile = load_profile(name)
        if json:
            print_json(profile)
        else:
            print_profile(profile)
        return
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
    print_table("described devices", ["name", "description", "chip"], [[p.name, p.description, p.chip] for p in profiles])


def _yes(value: bool) -> str:
    return "yes" if value else "no"
