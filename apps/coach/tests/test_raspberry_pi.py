"""The guide to a Raspberry Pi: its configuration loads, and its unit starts the coach as the coach can be started."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("typer")

import typer.main

from coach.__main__ import app
from coach.config import load_config
from edgeengine.errors import DeviceError, UserError

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "raspberry-pi.md"


def _block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


def _service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(_block("ini"))
    return unit["Service"]


def test_the_configuration_loads(tmp_path: Path) -> None:
    file = tmp_path / "coach.toml"
    file.write_text(_block("toml"), encoding="utf-8")
    assert load_config(file).framing == "wt901"


def test_the_unit_gives_the_coach_arguments_it_takes() -> None:
    python, dash_m, module, *arguments = shlex.split(_service()["ExecStart"])
    assert (Path(python).name, dash_m, module) == ("python", "-m", "coach")
    given = typer.main.get_command(app).make_context("coach", arguments).params
    assert given["config"] == Path("/etc/coach.toml")
    assert given["plain"]


def test_the_unit_restarts_for_a_sensor_and_not_for_a_configuration() -> None:
    never = _service()["RestartPreventExitStatus"].split()
    assert str(UserError.exit_code) in never
    assert str(DeviceError.exit_code) not in never
