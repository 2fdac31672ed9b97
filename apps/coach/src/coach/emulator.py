"""`python -m coach.emulator`: a motion sensor on a serial port that plays recordings, for whoever has no board at hand."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import numpy as np

try:
    import typer
except ImportError as e:
    sys.stderr.write(f"coach: {e.name} is missing; install it with: pip install 'edgeengine-coach[app]'\n")
    sys.exit(2)

from coach.board import Board
from coach.carriers import carrier
from coach.exits import run
from coach.player import Manner, Player
from coach.recordings import Recording, load_recordings
from edgeengine.errors import UserError
from edgeengine.state import state_folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def emulate(
    port: Annotated[Path, typer.Option(help="Name of the port: a link that is made.")] = Path("ttyCOACH"),
    framing: Annotated[str, typer.Option(help="Wire format: wt901, cobs, cyton, lines, cms50d+.")] = "wt901",
    baud: Annotated[int | None, typer.Option(help="Who opens the port at another rate hears garbage.")] = None,
    subject: Annotated[list[int] | None, typer.Option(help="Whose recordings (1 to 10); may be repeated.")] = None,
    side: Annotated[int | None, typer.Option(help="Only this wrist, 0 left or 1 right.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Seconds of recordings to play; without end if absent.")] = None,
    speed: Annotated[float, typer.Option(help="So many times faster than recorded.")] = 1.0,
    errors: Annotated[float, typer.Option(help="Share of the bytes that are lost, flipped or put in.")] = 0.0,
    jitter_ms: Annotated[float, typer.Option(help="Samples come late by up to this.")] = 0.0,
    garbage: Annotated[float, typer.Option(help="Seconds of garbage after being plugged in.")] = 0.0,
    split: Annotated[bool, typer.Option("--split", help="Send each sample in two writes.")] = False,
    unplug: Annotated[list[str] | None, typer.Option(help="AT:SECONDS, from the start; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Of the errors, the jitter and the cuts.")] = 0,
    log: Annotated[Path | None, typer.Option(help="A JSON line for each event.")] = None,
    state: Annotated[str | None, typer.Option(help="Folder that keeps the recordings.")] = None,
) -> None:
    """Play the watch recordings over a pseudo-terminal. Stop with Ctrl-C."""
    if (
        not 0 < speed <= 100
        or not 0 <= errors < 1
        or not 0 <= jitter_ms < math.inf
        or not 0 <= garbage < math.inf
        or (seconds is not None and not 0 < seconds < math.inf)
        or seed < 0
    ):
        raise UserError(
            "emulator: --speed is above 0 and at most 100, --errors from 0 to below 1, --seconds above 0, "
            "other times and --seed not negative"
        )
    manner = Manner(speed, errors, jitter_ms / 1e3, garbage, split, tuple(_unplug(u) for u in unplug or ()))
    rng = np.random.default_rng(seed)
    chosen = _recordings(subject or [4], side, state_folder(state) / "recordings")
    rate = baud or carrier(framing).baudrate
    board = Board(port, rate, rng)
    opened = log.open("w", encoding="utf-8") if log is not None else None
    try:
        player = Player(board, framing, manner, rng, opened)
        typer.echo(f"{framing} on {port} at {rate} baud, {len(chosen)} recordings, {speed:g} times as fast", err=True)
        player.play(chosen, seconds)
    finally:
        board.unplug()
        if opened is not None:
            opened.close()


def _unplug(text: str) -> tuple[float, float]:
    try:
        at, length = (float(part) for part in text.split(":"))
    except ValueError as e:
        raise UserError(f"emulator: --unplug {text}: write AT:SECONDS, as in 10:3") from e
    if not 0 <= at or not 0 < length:
        raise UserError(f"emulator: --unplug {text}: both times are positive")
    return at, length


def _recordings(subjects: list[int], side: int | None, cache: Path) -> list[Recording]:
    found = [r for s in subjects for r in load_recordings(s, cache) if side is None or r.side == side]
    if not found:
        raise UserError(f"emulator: no recordings of side {side}; sides are 0 and 1")
    return found


if __name__ == "__main__":
    run(app)
