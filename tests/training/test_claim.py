"""Two processes never learn in one folder at a time; one that was killed is in nobody's way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgeengine.errors import UserError
from edgeengine.training.claim import LOCK, Claim

pytest.importorskip("fcntl", reason="needs POSIX locks")
CLAIM = (
    "import sys; from pathlib import Path; from edgeengine.training.claim import Claim; Claim(Path(sys.argv[1])); print('mine')"
)


def other(folder: Path, then: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CLAIM + then, str(folder)], capture_output=True, text=True, check=False)


def test_a_claimed_folder_is_refused_to_others_until_every_claim_is_released(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    first, second = Claim(folder), Claim(folder)
    assert "UserError" in other(folder).stderr and "another process learns there" in other(folder).stderr
    first.release()
    first.release()
    assert other(folder).returncode == 1
    second.release()
    assert other(folder).stdout == "mine\n"
    Claim(folder).release()


def test_one_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    killed = other(tmp_path, "; import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -9 and (tmp_path / LOCK).exists()
    Claim(tmp_path).release()


def test_a_folder_removed_and_made_anew_is_claimed_anew(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    before = Claim(folder)
    shutil.rmtree(folder)
    now = Claim(folder)
    before.release()
    assert other(folder).returncode == 1
    now.release()
    assert other(folder).returncode == 0


def test_descriptors_do_not_leak(tmp_path: Path) -> None:
    open_before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None
    for _ in range(20):
        Claim(tmp_path).release()
    assert open_before is None or len(os.listdir("/proc/self/fd")) == open_before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        Claim(tmp_path / "file" / "state")
