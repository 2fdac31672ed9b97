"""Whatever is wrong with the options of the coach and its emulator is one line, and exit code 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

from coach import __main__, emulator
from coach.exits import run
from coach.packages import WATCH, PackageFile

COACH = {
    "nothing to watch": ([], "--config"),
    "port without a name": (["--port", ""], "--config"),
    "speed of none": (["--port", "tty", "--speed", "0"], "speed = 0.0"),
    "seconds that are no number": (["--port", "tty", "--seconds", "nan"], "--seconds nan"),
    "log in no folder": (["--port", "tty", "--log", "none/log"], "none/log: No such file"),
}
EMULATOR = {
    "endless jitter": ["--jitter-ms", "inf"],
    "jitter that is no number": ["--jitter-ms", "nan"],
    "garbage that is no number": ["--garbage", "nan"],
    "endless seconds": ["--seconds", "inf"],
    "seconds that are no number": ["--seconds", "nan"],
    "negative seed": ["--seed", "-1"],
}


def ended(app: typer.Typer, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    with pytest.raises(SystemExit) as e:
        run(lambda: typer.main.get_command(app).main(arguments, standalone_mode=False))
    return e.value.code, capsys.readouterr().err


@pytest.mark.parametrize("case", COACH)
def test_the_coach(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    arguments, word = COACH[case]
    code, said = ended(__main__.app, arguments, capsys)
    assert code == 2 and word in said and said.count("\n") == 1 and said.startswith("coach: "), said


@pytest.mark.parametrize("case", EMULATOR)
def test_the_emulator(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended(emulator.app, EMULATOR[case], capsys)
    assert code == 2 and "times" in said and said.count("\n") == 1 and said.startswith("coach: emulator: "), said


def test_the_emulators_log_in_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], foreign: Callable[[PackageFile], Path]
) -> None:
    foreign(WATCH)
    code, said = ended(emulator.app, ["--log", str(tmp_path / "none/log"), "--state", str(tmp_path)], capsys)
    assert code == 2 and "none/log: No such file" in said and said.count("\n") == 1, said
