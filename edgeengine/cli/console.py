"""How commands talk: results on stdout, progress and notes on stderr; with --json one document on stdout."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from edgeengine.errors import UserError

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; progress and notes on stderr.")]
State = Annotated[str | None, typer.Option("--state", help="Folder for profiles and cached bundles.")]

WIDE = 160  # where output is no terminal there is no edge to wrap at

err = Console(stderr=True, highlight=False, soft_wrap=True)
out = Console(highlight=False, width=None if sys.stdout is not None and sys.stdout.isatty() else WIDE)


def print_json(document: object) -> None:
    if sys.stdout is None:
        raise UserError("standard output is closed: nowhere to print to")
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    sys.stdout.flush()


def note(text: str) -> None:
    err.print(text, markup=False)


class Bar:
    """Callable as progress(text, share done 0..1)."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._task = progress.add_task("", total=1.0)

    def __call__(self, text: str, share: float) -> None:
        self._progress.update(self._task, description=text, completed=share)


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """One bar on stderr. Not shown where stderr is no terminal."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, refresh_per_second=4, disable=not err.is_terminal) as progress:
        yield Bar(progress)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[str] = ()) -> None:
    """A table on stdout; columns in `numeric` are right-aligned."""
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(v)) for v in row))
    out.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


HEADINGS = {
    "criticality": "class",
    "released": "rel.",
    "dropped": "drop",
    "failed": "fail",
    "rejected": "rej.",
    "miss_rate": "missed",
    "miss_low": "from",
    "miss_high": "to",
}


Causes = Counter[tuple[str, str, str]]


def print_rows(title: str, rows: Sequence[dict[str, object]], causes: Causes | None = None) -> None:
    """The per-task table of a run; below it, why jobs were missed: how many by (task, outcome, cause)."""
    keys = list(rows[0]) if rows else []
    columns = [HEADINGS.get(k, k.replace("_", " ")) for k in keys]
    cells = [[f"{r[k]:.1%}" if k.startswith("miss_") else r[k] for k in keys] for r in rows]
    print_table(title, columns, cells, numeric=columns[2:])
    for (task, outcome, cause), count in (causes or Counter()).most_common(8):
        out.print(f"{task}: {count} {outcome}: {cause}", markup=False)
