"""Run commands here, as the installed script would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state_home: Path) -> Cli:
    """Runs `edgeengine` with the arguments in a folder of its own; state goes there too, but for what all tests may share."""
    from edgeengine.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "state" / "edgeengine").mkdir(parents=True)
    (state_home / "cache").mkdir(exist_ok=True)
    (tmp_path / "state" / "edgeengine" / "cache").symlink_to(state_home / "cache")

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["edgeengine", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as e:
            main()
            sys.exit(0)
        written = capsys.readouterr()
        code = e.value.code
        return Done(code if isinstance(code, int) else int(code is not None), written.out, written.err)

    return run
