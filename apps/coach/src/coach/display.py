"""The live picture of a coach, and the keys. Drawn twice a second: more often it would take time from the workers."""

from __future__ import annotations

import os
import select
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from coach.service import Coach

PERIOD_S = 0.5


def picture(coach: Coach, kept: Counter[str], said: str) -> RenderableType:
    """`kept`: windows named so far, `said`: the latest note."""
    return Group(_decision(coach), _table(coach), _quality(coach), _labels(coach, kept), Text(said, style="dim"))


def _decision(coach: Coach) -> Text:
    latest = coach.tally.latest
    if not coach.sensor.fresh:
        return Text("STALE: no fresh samples, nothing is decided", style="bold red")
    if latest is None or latest.label is None:
        return Text("no decision" if latest is None else f"{latest.outcome}: {latest.cause}", style="yellow")
    count = coach.tally.repetitions[latest.label]
    return Text(f"{latest.label}  {latest.confidence:.0%}  about {count} repetitions", style="bold green")


def _table(coach: Coach) -> Table:
    tally, table = coach.tally, Table(title="decisions", title_justify="left")
    for column in ("released", "met", "late", "dropped", "failed", "sensor to action p50 ms", "p99 ms"):
        table.add_column(column, justify="right")
    latencies = [tally.latency_ms(share) for share in (0.5, 0.99)]
    counts = [sum(tally.outcomes.values()), *(tally.outcomes[o] for o in ("met", "late", "dropped", "failed"))]
    table.add_row(*map(str, counts), *("-" if v is None else f"{v:.1f}" for v in latencies))
    return table


def _quality(coach: Coach) -> Text:
    sensor = coach.sensor
    losses = ", ".join(f"{kind} {count}" for kind, count in sensor.reader.losses.items() if count) or "none"
    state = "connected" if sensor.line.connected else "away"
    latest = coach.tally.latest
    version = f"version {latest.version}" if latest is not None and latest.version else "as it came"
    return Text(
        f"{sensor.line.port} {state}, broke {sensor.line.breaks} times; {sensor.reader.frames} frames, losses: {losses}; "
        f"model {coach.bundle.hash[:8]}, {version}"
    )


def _labels(coach: Coach, kept: Counter[str]) -> Text:
    keys = "  ".join(f"{i}={label}({kept[label]})" for i, label in enumerate(coach.about.labels, 1))
    return Text(f"what is it really? {keys}  r=as before  q=quit")


@contextmanager
def keyboard() -> Iterator[None]:
    """Keys come one by one, without Enter, while inside; does nothing where standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    found = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, found)


def key(timeout_s: float) -> str:
    """The key pressed within `timeout_s`, else "". Without a terminal it only waits."""
    waits = [sys.stdin] if sys.stdin.isatty() else []
    ready, _, _ = select.select(waits, [], [], timeout_s)
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "ignore") if ready else ""
