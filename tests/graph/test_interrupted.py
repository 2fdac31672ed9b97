"""Killed, interrupted, out of space: the bundle that was there stays, and nothing half-written is left for good."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgeengine.bundle import open_bundle
from edgeengine.graph import build_bundle
from tests.graph.onnxes import model, node, weight, x_in

Save = Callable[..., Path]

_BUILD = """
import os, resource, signal, sys
from edgeengine.errors import UserError
from edgeengine.graph import build_bundle
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
path, out, how, when = sys.argv[1:]
def progress(text, share):
    if text.startswith(when):
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if how == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    build_bundle(path, out, parts=2, progress=progress)
except KeyboardInterrupt:
    sys.exit(130)
except UserError as e:
    print(e)
    sys.exit(2)
"""


def big(saved: Save) -> Path:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])]
    return saved(model(nodes, [x_in("N", 128)], ["y"], [weight("w", np.eye(128))]))


def build(path: Path, how: str, when: str) -> subprocess.CompletedProcess[str]:
    out = path.parent / "m.edge"
    return subprocess.run(
        [sys.executable, "-c", _BUILD, path, out, how, when], capture_output=True, text=True, check=False, timeout=60
    )


def present(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("when", ["extracting", "verifying", "writing the manifest"])
def test_killed(saved: Save, when: str) -> None:
    path = big(saved)
    done = build(path, "kill", when)
    assert done.returncode == -signal.SIGKILL
    left = [n for n in present(path.parent) if n != "model.onnx"]
    assert len(left) == 1 and left[0].startswith(".m.edge.") and not (path.parent / "m.edge").exists()
    # The next build clears it away, and an older bundle outlives a kill.
    first = build_bundle(path, path.parent / "m.edge", parts=1)
    assert present(path.parent) == ["m.edge", "model.onnx"]
    build(path, "kill", when)
    assert open_bundle(path.parent / "m.edge").hash == first.hash


@pytest.mark.parametrize("when", ["running", "extracting", "verifying"])
def test_interrupted(saved: Save, when: str) -> None:
    path = big(saved)
    done = build(path, "interrupt", when)
    assert done.returncode == 130 and present(path.parent) == ["model.onnx"], done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
def test_out_of_space(saved: Save) -> None:
    """A limit on the size of files is met as a full disk is: by an error when writing. The weights are 64 kB."""
    path = big(saved)
    done = build(path, "full", "extracting")
    assert done.returncode == 2 and "cannot be written" in done.stdout and done.stdout.count("\n") == 1, done.stderr
    assert present(path.parent) == ["model.onnx"]
