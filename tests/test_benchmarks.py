"""The record of the benchmarks is of all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks


@pytest.mark.parametrize(("names", "kept"), [([], True), (["one"], False)])
def test_only_a_full_run_is_kept(
    names: list[str], kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks, "BENCHMARKS", {"one": list, "two": list})
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path / "results/latest.json")
    monkeypatch.setattr(sys, "argv", ["benchmarks", *names, "--json"])
    benchmarks.main()
    assert (tmp_path / "results/latest.json").is_file() == kept
    assert capsys.readouterr().out.startswith("{")
