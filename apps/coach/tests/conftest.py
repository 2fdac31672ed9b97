"""What the tests of this app share: the foreign files where installed, and one track of sound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coach import packages
from coach.audio import Track
from coach.recordings import Recording, load_recordings
from edgeengine.errors import UserError


@pytest.fixture(scope="session")
def track() -> Track:
    return Track()


@pytest.fixture(scope="session")
def foreign() -> Callable[[packages.PackageFile], Path]:
    """The path of a file in somebody else's package; skips the test where it is not installed."""

    def find(file: packages.PackageFile) -> Path:
        try:
            return packages.locate(file)
        except UserError as e:
            pytest.skip(str(e))

    return find


@pytest.fixture(scope="session")
def open_session() -> Callable[[Path], Any]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime runs the models")

    def open_file(path: Path) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    return open_file


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="session")
def recordings(foreign: Callable[[packages.PackageFile], Path], cache: Path) -> list[Recording]:
    """Those of subject 4: the shortest there are."""
    foreign(packages.WATCH)
    return load_recordings(4, cache)
