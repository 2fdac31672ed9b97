"""`edgeengine report`: a run as a page to read, or as a Perfetto trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgeengine.cli.console import Json, note, print_json

EXAMPLES = (
    "edgeengine run workload.toml -o run && edgeengine report run -o run.html",
    "edgeengine report run --trace run.pftrace     (open it in ui.perfetto.dev)",
)


def command(
    run: Annotated[str, typer.Argument(help="The folder that 'run -o' or 'simulate -o' wrote.")],
    output: Annotated[str | None, typer.Option("-o", "--output", help="The page to write, FILE.html.")] = None,
    trace: Annotated[str | None, typer.Option(help="The Perfetto trace to write, FILE.pftrace.")] = None,
    json: Json = False,
) -> None:
    """Draw a run: a timeline per processor, latencies, and why each deadline that was missed was missed."""
    from edgeengine.errors import UserError
    from edgeengine.reporting import write_file
    from edgeengine.reporting.report import explain, load_run, perfetto_trace, report_html

    if output is None and trace is None and not json:
        raise UserError("report: nothing to write; give -o FILE.html, --trace FILE.pftrace or --json")
    read = load_run(Path(run))
    if output is not None:
        write_file(Path(output), report_html(read, f"edgeengine: {Path(run).resolve().name}"))
        note(f"written to {output}")
    if trace is not None:
        write_file(Path(trace), perfetto_trace(read))
        note(f"written to {trace}")
    if json:
        missed = [{"task": e.job.task, "index": e.job.index, "reason": e.reason, "why": e.sentence} for e in explain(read)]
        print_json({"jobs": len(read.jobs), "missed": missed})
