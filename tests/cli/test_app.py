"""`edgeengine app new`: what it writes works as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli


def test_the_new_apps_own_test_passes(cli: Cli, tmp_path: Path) -> None:
    assert cli("app", "new", "doorbell").code == 0
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path / "doorbell", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


@pytest.mark.parametrize("name", ["two words", "9lives", "class", "Upper", "../out", "na-me", "", "_", "__init__", "2"])
def test_a_name_that_is_no_package_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.iterdir())
    done = cli("app", "new", name)
    assert done.code == 2
    assert "cannot name a package" in done.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["edgeengine", "numpy", "json", "this"])
def test_a_name_that_would_hide_a_module_is_refused(cli: Cli, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.iterdir())
    done = cli("app", "new", name)
    assert done.code == 2 and f"a Python module {name} already" in done.err and done.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_an_app_that_is_there_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "doorbell").mkdir()
    done = cli("app", "new", "doorbell")
    assert done.code == 2
    assert "is there already" in done.err
    assert not list((tmp_path / "doorbell").iterdir())
