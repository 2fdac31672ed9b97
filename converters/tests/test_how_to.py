"""docs/how-to/convert.md, command by command."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is needed to export")
pytest.importorskip("typer", reason="the command line is needed")

from edgeengine_converters.source import TorchConverter

GUIDE = Path(__file__).parents[2] / "docs/how-to/convert.md"


@pytest.mark.skipif(not GUIDE.is_file(), reason="the guide is not beside this distribution")
def test_every_command_of_the_guide_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgeengine.cli.main import app

    text = GUIDE.read_text(encoding="utf-8")
    (tmp_path / "classifier.py").write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0])
    rng = np.random.default_rng(0)
    for name in ("some.npz", "others.npz"):
        np.savez(tmp_path / name, input=rng.standard_normal((48, 6, 32)).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("edgeengine.conversion.registry.load_converters", lambda: {"torch": TorchConverter()})
    commands = [line for line in text.splitlines() if line.startswith("edgeengine convert ")]
    assert len(commands) == 4
    for command in commands:
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        app(standalone_mode=False)
        assert (tmp_path / shlex.split(command)[4]).is_file()
