"""Device profiles are found from a source tree, a folder of one's own, and an installed wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgeengine.devices import list_profiles, load_profile
from edgeengine.errors import UserError

ROOT = Path(__file__).parents[2]
PROFILE = """
description = "a board"
chip = "a chip"
[[processor]]
name = "cpu0"
kind = "cpu"
resources = ["core0"]
description = "a core"
clock = { value = 1.5, unit = "GHz", source = "its label", status = "seen" }
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "acme").mkdir()
    monkeypatch.setenv("EDGEENGINE_PROFILES", str(tmp_path))
    return tmp_path


def test_profiles_of_the_source_tree_are_found_and_valid() -> None:
    names = {p.name for p in list_profiles()}
    assert names == {f"{f.parent.name}/{f.stem}" for f in (ROOT / "profiles").glob("*/*.toml")} != set()
    for profile in list_profiles():
        assert profile.processors
        assert len({p.name for p in profile.processors}) == len(profile.processors)
        assert all(p.provider == "simulated" and p.resources for p in profile.processors)


def test_profile_is_loaded_by_its_full_or_its_only_name() -> None:
    assert load_profile("raspberrypi/pi4") == load_profile("pi4")
    with pytest.raises(UserError, match=r"'pi99'.*raspberrypi/pi4"):
        load_profile("pi99")


def test_own_folder_comes_first(own: Path) -> None:
    (own / "acme/board.toml").write_text(PROFILE)
    (own / "raspberrypi").mkdir()
    (own / "raspberrypi/pi4.toml").write_text(PROFILE)
    assert load_profile("board").name == "acme/board"
    assert load_profile("pi4").chip == "a chip"
    assert {"acme/board", "raspberrypi/pi4"} < {p.name for p in list_profiles()}


def test_name_that_two_vendors_use_must_be_given_in_full(own: Path) -> None:
    for vendor in ("acme", "other"):
        (own / vendor).mkdir(exist_ok=True)
        (own / vendor / "board.toml").write_text(PROFILE)
    with pytest.raises(UserError, match="acme/board, other/board"):
        load_profile("board")
    assert load_profile("other/board").name == "other/board"


@pytest.mark.parametrize(
    "text",
    ["not toml [", "chip = 1", PROFILE.replace('"cpu"', '"abacus"'), PROFILE.replace('"seen"', '"heard"'),
     PROFILE + "cores = 4", PROFILE.replace(', source = "its label"', "")],
)  # fmt: skip
def test_bad_profile_is_named(own: Path, text: str) -> None:
    (own / "acme/board.toml").write_text(text)
    with pytest.raises(UserError, match=r"board\.toml: not a valid device profile"):
        load_profile("acme/board")


def test_own_folder_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEENGINE_PROFILES", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"EDGEENGINE_PROFILES=.*nowhere"):
        list_profiles()


def test_wheel_has_one_top_level_with_the_profiles_in_it(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")], cwd=ROOT, check=True,
        capture_output=True,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    tops = sorted(p.name for p in unpacked.iterdir())
    assert len(tops) == 2 and tops[0] == "edgeengine" and tops[1].endswith(".dist-info")
    assert not [p for p in unpacked.rglob("*") if p.name.startswith(("test_", "tests")) or p.name == "conftest.py"]
    code = "import edgeengine, edgeengine.devices as d; print(edgeengine.__file__); print(*[p.name for p in d.list_profiles()])"
    env = {k: v for k, v in os.environ.items() if k != "EDGEENGINE_PROFILES"} | {"PYTHONPATH": str(unpacked)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=env).stdout
    file, names = out.splitlines()
    assert Path(file).is_relative_to(unpacked)
    assert set(names.split()) == {f"{f.parent.name}/{f.stem}" for f in (ROOT / "profiles").glob("*/*.toml")}
