"""`python -m coach`: from a motion sensor on a serial port to the exercise being done, live."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.live import Live
except ImportError as e:
    sys.stderr.write(f"coach: {e.name} is missing; install it with: pip install 'edgeengine-coach[app]'\n")
    sys.exit(2)

import msgspec

from coach import display
from coach.config import Config, check_config, load_config
from coach.exits import run
from coach.service import Coach, Decision
from edgeengine.errors import UserError
from edgeengine.state import state_folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def coach(
    config: Annotated[Path | None, typer.Option(help="The configuration, a TOML file.")] = None,
    port: Annotated[str | None, typer.Option(help="The sensor's port, instead of the configuration's.")] = None,
    speed: Annotated[float | None, typer.Option(help="As the emulator's --speed.")] = None,
    seconds: Annotated[float | None, typer.Option(help="End after so long; else with q or Ctrl-C.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="A line per change instead of the live picture.")] = False,
    log: Annotated[Path | None, typer.Option(help="A JSON line for each decision.")] = None,
) -> None:
    """Watch the sensor and say which exercise is being done. Keys 1 to 7 name what it is, and it learns."""
    if seconds is not None and not seconds > 0:
        raise UserError(f"--seconds {seconds:g}: must be above 0")
    settings = _settings(config, port, speed)
    state = state_folder(settings.state or None)
    console = Console(stderr=True, highlight=False)
    with ExitStack() as stack:
        told = (
            _logger(stack.enter_context(log.open("w", encoding="utf-8"))) if log is not None else lambda decision: None
        )
        made = Coach(settings, state, note=lambda text: console.print(text, markup=False))
        stack.enter_context(made.running(told))
        end = None if seconds is None else time.monotonic() + seconds
        if plain or not sys.stdout.isatty():
            _watch_plain(made, end)
        else:
            _watch(made, end)
    typer.echo(_summary(made))


def _settings(file: Path | None, port: str | None, speed: float | None) -> Config:
    settings = load_config(file) if file is not None else Config()
    settings = msgspec.structs.replace(settings, port=port or settings.port)
    if not settings.port:
        where = "--port, or --config FILE.toml" if file is None else f"--port, or port = … in {file}"
        raise UserError(f"no sensor: give {where}; without one: python -m coach.emulator")
    if speed is not None:
        settings = msgspec.structs.replace(settings, speed=speed)
    return check_config(settings, "options")


def _watch(made: Coach, end: float | None) -> None:
    said = ""
    with display.keyboard(), Live(auto_refresh=False, screen=False) as live:
        while end is None or time.monotonic() < end:
            live.update(display.picture(made, made.named(), said), refresh=True)
            pressed = display.key(display.PERIOD_S)
            if pressed == "q":
                return
            said = _answer(made, pressed) or said


def _answer(made: Coach, pressed: str) -> str:
    """Do what a key asks for; says what was done."""
    names = made.about.labels
    try:
        if pressed == "r":
            return f"back to {made.rollback() or 'the model as it came'}"
        if not pressed.isdigit() or not 1 <= int(pressed) <= len(names):
            return ""
        latest, label = made.tally.latest, names[int(pressed) - 1]
        if latest is None or latest.window is None or latest.label is None:
            return "no window to name: the data is stale"
        made.name(latest.window, label)
        return f"learning {label} (recognised {latest.label})"
    except UserError as e:
        return str(e)


def _watch_plain(made: Coach, end: float | None) -> None:
    """A line whenever what is seen changes."""
    before = ""
    while end is None or time.monotonic() < end:
        latest = made.tally.latest
        seen = "waiting" if latest is None else latest.label or f"{latest.outcome}: {latest.cause}"
        if seen != before:
            typer.echo(seen)
            before = seen
        display.key(display.PERIOD_S)


def _logger(file: Any) -> Callable[[Decision], None]:
    def write(decision: Decision) -> None:
        row = {
            f: getattr(decision, f)
            for f in (
                "index",
                "outcome",
                "cause",
                "at_ns",
                "label",
                "confidence",
                "last_byte_ns",
                "latency_ns",
                "version",
            )
        }
        json.dump(row, file)
        file.write("\n")

    return write


def _summary(made: Coach) -> str:
    tally = made.tally
    p50, p99 = tally.latency_ms(0.5), tally.latency_ms(0.99)
    latency = "" if p50 is None or p99 is None else f"; sensor to action p50 {p50:.1f} ms, p99 {p99:.1f} ms"
    return f"decisions: {', '.join(f'{n} {o}' for o, n in sorted(tally.outcomes.items())) or 'none'}{latency}"


if __name__ == "__main__":
    run(app)
