"""Files of other packages: found without importing, and one command when absent."""

from __future__ import annotations

import sys

import pytest

from coach import packages
from coach.packages import PackageFile
from edgeengine.errors import UserError


def test_finds_a_file_without_importing() -> None:
    before = set(sys.modules)
    path = packages.locate(PackageFile("pytest", "0", "pytest/__init__.py"))
    assert path.is_file() and set(sys.modules) == before


def test_one_command_for_all_that_is_absent() -> None:
    absent = [PackageFile("no-such-dist", "1.2", "a.onnx"), PackageFile("no-such-dist", "1.2", "b.onnx")]
    gone = PackageFile("pytest", "3.4", "pytest/gone.onnx")
    with pytest.raises(UserError, match=r"run: pip install --no-deps no-such-dist==1\.2 pytest==3\.4$") as caught:
        packages.locate_all([*absent, gone])
    assert "a.onnx, b.onnx" in str(caught.value) and "\n" not in str(caught.value)
