"""`edgeengine profiles`: what was measured, here and elsewhere: list it, export it, merge what another machine exported."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from edgeengine.cli.console import Json, State, note, print_json, print_table

EXAMPLES = (
    "edgeengine profiles",
    "edgeengine profiles export board.json",
    "edgeengine profiles merge board.json other/profile.sqlite",
)


def command(
    action: Annotated[str | None, typer.Argument(help="export or merge", metavar="[export|merge")] = None,
    files: Annotated[
        list[str] | None, typer.Argument(help="JSON to write, or JSON and stores to merge.", metavar="FILE…]")
    ] = None,
    state: State = None,
    json: Json = False,
) -> None:
    """List the measurements that are kept, export them as JSON, or merge those of other machines (the later of two stays)."""
    from edgeengine.errors import UserError
    from edgeengine.profiling import PREDICTED, ProfileStore, export_json, read_profile
    from edgeengine.reporting import write_file
    from edgeengine.state import state_folder

    if (action, bool(files)) not in ((None, False), ("export", True), ("merge", True)) or (
        action == "export" and len(files or []) > 1
    ):
        raise UserError(
            "profiles: use 'edgeengine profiles', 'edgeengine profiles export FILE' or 'edgeengine profiles merge FILE …'"
        )
    store = ProfileStore(state_folder(state) / "profile.sqlite")
    if action == "merge":
        read = [(file, *read_profile(Path(file))) for file in files or []]  # all of them, before anything is written
        for file, rows, machine in read:
            note(f"{file}: {store.merge(rows, machine)} of {len(rows) + len(machine)} rows are new or later")
            predicted = sum(r.ended == PREDICTED for r in rows)
            if predicted:
                note(f"{file}: {predicted} rows are predicted, not measured: left out")
    rows, machine = store.rows(), store.machine_rows()
    if action == "export":
        write_file(Path((files or [""])[0]), export_json(rows, machine)[0])
    counts = Counter((r.device, r.bundle) for r in rows) + Counter((r.device, "") for r in machine)
    kept = [{"device": device, "bundle": bundle, "rows": n} for (device, bundle), n in sorted(counts.items())]
    if json:
        print_json({"kept": kept})
    else:
        print_table(
            "measured", ["device", "bundle", "rows"], [[k["device"], k["bundle"] or "the machine", k["rows"]] for k in kept]
        )
